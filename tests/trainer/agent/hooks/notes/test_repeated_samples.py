"""Data sets that each worker of a loader reads as a whole."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, dataloader, get_worker_info

from kittrain.agent.hooks.notes.repeated_samples import LOADERS, RepeatedSamples
from kittrain.outcome.rank_output import SAME_SAMPLES, trains_nothing


class Stream(IterableDataset[Any]):
    """Numbers from 0 on."""

    def __init__(self, *, parts: bool = False, kind: str = "tensor") -> None:
        self.parts, self.kind = parts, kind

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if self.parts and info else (0, 1)
        for number in range(first, 64, step):
            match self.kind:
                case "tensor":
                    yield torch.full((3,), float(number))
                case "mapping":
                    yield {"x": torch.full((3,), float(number)), "name": f"sample {number}"}
                case "constant":
                    yield torch.ones(3)
                case "random":
                    yield torch.rand(3)
                case _:
                    yield Unknown(number)


class Unknown:
    """Of no kind that can be compared."""

    def __init__(self, number: int) -> None:
        self.number = number


def split(_worker: int) -> None:
    """As a loader's worker_init_fn."""
    info: Any = get_worker_info()
    info.dataset.parts = True


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> RepeatedSamples:
    """Whose script takes steps; torch's own class is as before after the test."""
    kind: Any = dataloader._MultiProcessingDataLoaderIter
    monkeypatch.setattr(kind, "__init__", kind.__init__)
    found = RepeatedSamples(lambda: 1)
    found.watch(dataloader)
    return found


def passed(data: Any, workers: int, **options: Any) -> list[Any]:
    return list(DataLoader(data, 4, num_workers=workers, **options))


@pytest.mark.parametrize("kind", ["tensor", "mapping"])
@pytest.mark.parametrize("workers", [2, 3])
def test_samples_that_each_worker_reads_are_told(
    found: RepeatedSamples, kind: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(passed(Stream(kind=kind), workers)) == workers * 16, "the pass is as it was"
    found.tell()
    told = capsys.readouterr().err
    assert told == f"note: {SAME_SAMPLES}each of {workers} has all of Stream\n"
    assert trains_nothing([told]) == told.removeprefix("note: ").strip()


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (Stream(parts=True), {}),
        (Stream(kind="constant"), {}),
        (Stream(kind="random"), {}),
        (Stream(kind="unknown"), {"collate_fn": list}),
        (TensorDataset(torch.arange(64)), {}),
        (Stream(), {"worker_init_fn": split}),
    ],
    ids=["split", "constant", "random", "unknown", "mapped", "split by the loader"],
)
def test_healthy_loaders_are_told_nothing(
    found: RepeatedSamples, data: Any, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    passed(data, 2, **options)
    passed(data, 1, **options)
    found.tell()
    assert capsys.readouterr().err == ""


def test_without_steps_it_is_told_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = dataloader._MultiProcessingDataLoaderIter
    monkeypatch.setattr(kind, "__init__", kind.__init__)
    found = RepeatedSamples(lambda: 0)
    found.watch(dataloader)
    passed(Stream(), 2)
    found.tell()
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("found")
def test_a_pass_that_is_left_early_is_freed_at_once_and_one_that_goes_on_has_torchs_own_function() -> None:
    begun = iter(DataLoader(Stream(), 4, num_workers=2))
    next(begun)
    freed = weakref.ref(begun)
    gc.disable()
    try:
        del begun
        assert freed() is None, "its workers end with it"
    finally:
        gc.enable()
    begun = iter(DataLoader(Stream(), 4, num_workers=2))
    for _ in range(3):
        assert "_next_data" in vars(begun)
        next(begun)
    assert "_next_data" not in vars(begun)


@pytest.mark.usefixtures("found")
def test_only_a_few_loaders_are_looked_at() -> None:
    begun = [iter(DataLoader(Stream(), 4, num_workers=2)) for _ in range(LOADERS + 2)]
    assert sum("_next_data" in vars(one) for one in begun) == LOADERS
