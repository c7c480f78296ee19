"""Snapshots as plain text: a list, and one in detail. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kitctl.base import printable
from kitctl.base.quantity import duration, format_bytes, pluralize
from kitctl.output.view.columns import columns
from kitjob.history import LedgerEntry, SnapshotDetails, SnapshotFacts

_LIST = ("STEP", "EPOCH", "GENERATION", "RUN", "RANKS", "AGE", "SIZE", "CONDITION")
_TENSORS = ("TENSOR", "SHAPE", "TYPE", "SIZE")
_LEDGER = ("ENTRY", "GENERATION", "EPOCH", "STEPS", "POSITIONS", "RANKS")
_SHORT = 8  # characters of a run's id


def table(found: Sequence[SnapshotFacts], now: float, *, wide: bool = False) -> list[str]:
    """One line per snapshot, in the order given."""
    header = _LIST + (("NAME",) if wide else ())
    return columns(header, [_row(one, now, wide=wide) for one in found])


def page(one: SnapshotDetails, now: float) -> list[str]:
    """The details of one snapshot: its manifest, the model's tensors, and its history."""
    where = f", in epoch {one.epoch} after {one.position} of {one.samples} samples"
    data = f"{one.samples} samples in batches of {one.batch}, seed {one.seed}"
    facts = [
        ("Snapshot", one.name),
        ("Job", f"{one.job}, run {one.run}"),
        ("Step", f"{one.step}{where if one.samples else ''}"),
        ("Taken by", f"generation {one.generation}, {pluralize(one.world_size or 0, 'rank')}, torch {one.torch}"),
        ("Data", data if one.samples else "from a loader of the script's own"),
        ("Age", "-" if one.created is None else duration(now - one.created)),
        ("Size", format_bytes(one.size)),
        ("Resumed from", one.parent or "the start"),
        ("Digest", one.digest),
    ] + ([("Not finite", one.not_finite)] if one.not_finite else [])
    width = max(len(name) for name, _ in facts) + 3
    tensors = [[each.name, _shape(each.shape), each.dtype, format_bytes(each.size)] for each in one.tensors]
    head = [printable.line(f"{name:<{width}}{text}") for name, text in facts]
    return [*head, "", *columns(_TENSORS, tensors), "", *ledger(one.ledger)]


def ledger(entries: Sequence[LedgerEntry], broken: int | None = None) -> list[str]:
    """One line per entry; the broken one is marked."""
    rows = [
        [
            f"{number}{' <- here' if number == broken else ''}",
            str(one.generation),
            str(one.epoch + 1),
            f"{one.first_step}-{one.last_step}",
            f"{one.start}-{one.stop}",
            str(one.world_size),
        ]
        for number, one in enumerate(entries)
    ]
    return columns(_LEDGER, rows)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _condition(one: SnapshotFacts) -> str:
    notes = [one.reason, f"not finite ({one.not_finite})" if one.not_finite else ""]
    return ": ".join(filter(None, [one.condition, *notes]))


def _row(one: SnapshotFacts, now: float, *, wide: bool) -> list[str]:
    return [
        str(one.step),
        str(one.epoch or "-"),
        str(one.generation),
        (one.run or "-") if wide else (one.run or "-")[:_SHORT],
        str(one.world_size or "-"),
        "-" if one.created is None else duration(now - one.created),
        format_bytes(one.size),
        _condition(one),
    ] + ([one.name] if wide else [])
