"""The text that agents serve, read by Prometheus' own parsers."""

from __future__ import annotations

import math

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as plain_parser

from kittrain.agent.metrics.exposition import Family, Histogram, write

ODD = 'a "job"\\of\nlines, ü \ud800'


def steps() -> Family:
    found = Histogram((0.1, 1))
    found.observe(0.1, 3)
    found.observe(0.5)
    found.observe(7)
    return Family(name="x_step_seconds", kind="histogram", help="Steps.", histogram=found)


FAMILIES = (
    Family(name="x_lost_seconds", kind="counter", help=ODD, values={(("cause", "a"),): 1.5, (("cause", ODD),): 2}),
    Family(name="x_loss", kind="gauge", help="Loss.", values={(): math.nan}),
    Family(name="x_large", kind="gauge", help="Large.", values={(): math.inf}),
    Family(name="x_run", kind="info", help="Run.", values={(("job", ODD),): 1}),
    Family(name="x_unknown", kind="gauge", help="Not there.", values={}),
    steps(),
)


def test_openmetrics_is_what_the_official_parser_reads() -> None:
    found = {
        one.name: one for one in openmetrics_parser.text_string_to_metric_families(write(FAMILIES, openmetrics=True))
    }
    assert [*found] == ["x_lost_seconds", "x_loss", "x_large", "x_run", "x_step_seconds"]
    lost = found["x_lost_seconds"]
    assert (lost.type, lost.unit, lost.documentation) == ("counter", "seconds", ODD.replace("\ud800", "?"))
    assert [(one.name, one.labels["cause"], one.value) for one in lost.samples] == [
        ("x_lost_seconds_total", "a", 1.5),
        ("x_lost_seconds_total", ODD.replace("\ud800", "?"), 2.0),
    ]
    assert math.isnan(found["x_loss"].samples[0].value)
    assert found["x_large"].samples[0].value == math.inf
    counts = {one.labels.get("le", one.name): one.value for one in found["x_step_seconds"].samples}
    assert counts == {
        "0.1": 3,
        "1.0": 4,
        "+Inf": 5,
        "x_step_seconds_count": 5,
        "x_step_seconds_sum": pytest.approx(7.8),
    }


def test_the_older_format_has_the_same_samples() -> None:
    new = openmetrics_parser.text_string_to_metric_families(write(FAMILIES, openmetrics=True))
    old = plain_parser(write(FAMILIES, openmetrics=False))
    assert [[str(sample) for sample in one.samples] for one in old] == [
        [str(sample) for sample in one.samples] for one in new
    ]


def test_nothing_is_valid_too() -> None:
    assert [*openmetrics_parser.text_string_to_metric_families(write((), openmetrics=True))] == []
