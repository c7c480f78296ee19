"""Writes numbers as OpenMetrics 1.0, or as Prometheus' older text format. Pure.

An own writer of a page's length, since an image may have no ``prometheus_client``; tests parse it by that one.

Sources: https://prometheus.io/docs/specs/om/open_metrics_spec/ and .../docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
UNITS: Final = ("seconds", "bytes")

Labels = tuple[tuple[str, str], ...]
FamilyKind = Literal["counter", "gauge", "histogram", "info"]


class Histogram:
    """Counts of values up to each of some bounds, and their sum."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = (*bounds, math.inf)
        self.counts = [0] * len(self.bounds)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Add a value, so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


@dataclass(frozen=True, kw_only=True)
class Family:
    """The samples of one metric, by labels.

    Attributes:
        name: without ``_total``; its last word is its unit, if it has one.
        kind: as OpenMetrics names it.
        help: what it is.
        values: none leaves the metric out.
        histogram: instead of values.
    """

    name: str
    kind: FamilyKind
    help: str
    values: Mapping[Labels, float] = field(default_factory=dict)
    histogram: Histogram | None = None


def write(families: Iterable[Family], *, openmetrics: bool) -> str:
    """The text of all families, in OpenMetrics or in the older format."""
    lines = [line for family in families for line in _lines(family, openmetrics=openmetrics)]
    return "\n".join([*lines, "# EOF", ""] if openmetrics else [*lines, ""])


def _lines(family: Family, *, openmetrics: bool) -> Iterator[str]:
    if not (family.values or family.histogram):
        return
    ending = {"counter": "total", "info": "info"}.get(family.kind)
    suffix = f"_{ending}" if ending else ""
    name = family.name if openmetrics else family.name + suffix  # the older format has no name without the suffix
    kind = "gauge" if family.kind == "info" and not openmetrics else family.kind
    yield f"# HELP {name} {_escaped(family.help)}"
    yield f"# TYPE {name} {kind}"
    unit = family.name.rpartition("_")[2]
    if openmetrics and unit in UNITS:
        yield f"# UNIT {name} {unit}"
    if family.histogram:
        yield from _histogram(family.name, family.histogram)
    for labels, value in family.values.items():
        yield f"{family.name}{suffix}{_labels(labels)} {_number(value)}"


def _histogram(name: str, found: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip(found.bounds, found.counts, strict=True):
        total += count
        yield f'{name}_bucket{{le="{_number(bound)}"}} {total}'
    yield f"{name}_count {total}"
    yield f"{name}_sum {_number(found.sum)}"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels) + "}" if labels else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    found = text.encode(errors="replace").decode().replace("\\", "\\\\").replace("\n", "\\n")
    return found.replace('"', '\\"') if quotes else found


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
