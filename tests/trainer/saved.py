"""Snapshots for tests, made without training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.archive import Archive
from trainer.data import Cursor, Order
from trainer.ledger import extend
from trainer.snapshot import Manifest

ORDER = Order(samples=10, batch=4)
CONTENTS = {"state.pt": b"weights" * 1000, "rng.pt": b"dice"}


def manifest(steps: int = 3, generation: int = 1, **changes: Any) -> Manifest:
    """A manifest with a ledger that holds."""
    cursor = [Cursor(), *(ORDER.after(span) for span in ORDER.spans(Cursor(), 10))][steps]
    facts: dict[str, Any] = {
        "job": "a-job",
        "run": "run-1",
        "generation": generation,
        "step": steps,
        "cursor": cursor,
        "world_size": 2,
        "seed": 0,
        "model": "a model",
        "data": ORDER.fingerprint,
        "torch": "2.15",
        "created": 1000.0 + steps,
        "parent": None,
        "ledger": extend((), ORDER, generation, Cursor(), cursor),
    }
    return Manifest(**facts | changes)


def archive(folder: Path, say: Callable[[str], None] = print, **changes: Any) -> Archive:
    """The archive that those manifests belong to."""
    facts: dict[str, Any] = {"run": "run-1", "model": "a model", "order": ORDER, "keep": 3, "say": say}
    return Archive(folder, **facts | changes)
