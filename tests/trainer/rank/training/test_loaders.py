"""Loaders of all kinds continue at the batch after the last step, with the numbers that an undisturbed loop draws."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from kittrain import Drained, Run, Step, attach
from kittrain.job.env import RankEnv

SAMPLES = 14
EPOCHS = 3
Batches = list[Any]


class Numbers(Dataset[float]):
    """0 to 13, each with a random fraction; records what it loads."""

    def __init__(self) -> None:
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> float:
        self.loaded.append(index)
        return index + random.random() / 2 + torch.rand(()).item() / 4


class Stream(IterableDataset[float]):
    def __iter__(self) -> Iterator[float]:
        return (number + torch.rand(()).item() for number in range(SAMPLES))


class PositionedStream(Stream):
    """Knows how many it has read."""

    def __init__(self) -> None:
        self.read = self.loaded = 0

    def __iter__(self) -> Iterator[float]:
        while self.read < SAMPLES:
            self.read += 1
            self.loaded += 1
            yield self.read + torch.rand(()).item()
        self.read = 0

    def state_dict(self) -> dict[str, int]:
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.read = state["read"]


class StatefulLoader:
    """As torchdata's: its state is that of the running pass."""

    def __init__(self) -> None:
        self.epoch = self.taken = 0

    def __iter__(self) -> Iterator[list[float]]:
        order = torch.randperm(7, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        for number in order[self.taken :]:
            self.taken += 1
            yield [float(number), self.epoch]
        self.epoch, self.taken = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.taken = state["epoch"], state["taken"]


class StatefulDataLoader(DataLoader[Any]):
    """Torch's, with a state, and without a length, as torchdata's of a stream."""

    taken = skip = 0

    def __iter__(self) -> Any:
        return self._left(super().__iter__())  # which draws a number now

    def _left(self, batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches, 1):
            if number > self.skip:
                self.taken = number
                yield batch
        self.taken = self.skip = 0

    def __len__(self) -> int:
        raise TypeError("no length")

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skip = state["taken"]


class Curriculum(Sampler[int]):
    """Longer in each epoch; has a state, and draws each index from the global generator."""

    def __init__(self) -> None:
        self.level = 3

    def __iter__(self) -> Iterator[int]:
        self.level += 1
        return (int(torch.randint(SAMPLES, ())) for _ in range(self.level))

    def state_dict(self) -> dict[str, int]:
        return {"level": self.level}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.level = state["level"]


class Epochs(SequentialSampler):
    """Starts at the epoch of the last ``set_epoch``."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.epoch, self.epoch + 6))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(8)


def seven_twos() -> BatchSampler:
    return BatchSampler(RandomSampler(range(SAMPLES), generator=generator()), 2, drop_last=False)


LOADERS: dict[str, Callable[[], Iterable[Any]]] = {
    "shuffled": lambda: DataLoader(Numbers(), batch_size=3, shuffle=True),
    "with a generator": lambda: DataLoader(Numbers(), batch_size=3, shuffle=True, generator=generator()),
    "drop_last": lambda: DataLoader(Numbers(), batch_size=4, shuffle=True, drop_last=True),
    "weighted": lambda: DataLoader(Numbers(), batch_size=3, sampler=WeightedRandomSampler([1, 2] * 7, 9)),
    "batch sampler": lambda: DataLoader(Numbers(), batch_sampler=seven_twos()),
    "single samples": lambda: DataLoader(Numbers(), batch_size=None, shuffle=True),
    "sampler with a state": lambda: DataLoader(Numbers(), batch_size=1, sampler=Curriculum()),
    "sampler with epochs": lambda: DataLoader(Numbers(), batch_size=2, sampler=Epochs(range(6))),
    "workers": lambda: DataLoader(Numbers(), batch_size=3, shuffle=True, num_workers=2),
    "stream": lambda: DataLoader(Stream(), batch_size=3),
    "stream with a state": lambda: DataLoader(PositionedStream(), batch_size=3),
    "loader with a state": StatefulLoader,
    "DataLoader with a state": lambda: StatefulDataLoader(range(SAMPLES), batch_size=3, num_workers=1),  # type: ignore[arg-type]
    "list": lambda: [1.0, 2.0, 3.0, 4.0],
}


def loop(
    folder: Path | None, make: Callable[[], Iterable[Any]], stop: int = 0, *, endless: bool = False
) -> tuple[Batches, Any]:
    """What each step gets: a batch, and numbers drawn by the loop. Stops after a step, if that is not 0."""
    seen: Batches = []
    torch.manual_seed(5)
    random.seed(5)
    world = attach(env=RankEnv(run_id="run", snapshot_dir=folder))
    model, loader = nn.Linear(1, 1), make()

    def step(batch: Any) -> None:
        seen.append((batch.tolist() if isinstance(batch, Tensor) else batch, torch.rand(()).item(), random.random()))
        if len(seen) == stop:
            os.kill(os.getpid(), signal.SIGTERM)
        run.step()

    with Run(world, model=model, optimizer=torch.optim.SGD(model.parameters())) as run:
        torch.rand(1)  # a resumed run does not depend on what is drawn before the loop
        if endless:
            for _, batch in zip(run.steps(12), run.batches(loader), strict=False):
                step(batch)
        else:
            for epoch in run.epochs(EPOCHS):
                for batch in run.batches(loader):
                    step(batch)
                seen.append(("after epoch", epoch, torch.rand(()).item()))
    return seen, loader


def stopped_and_resumed(
    folder: Path, make: Callable[[], Iterable[Any]], stop: int, **options: Any
) -> tuple[int, Batches]:
    """The number of entries until the stop, and what the resumed loop got."""
    with pytest.raises(Drained):
        loop(folder, make, stop, **options)
    return stop, loop(folder, make, **options)[0]


@pytest.mark.parametrize("stop", [2, pytest.param(7, marks=pytest.mark.wide)])
@pytest.mark.parametrize("name", LOADERS)
def test_a_resumed_pass_continues_with_the_same_batches_and_numbers(tmp_path: Path, name: str, stop: int) -> None:
    expected, _ = loop(None, LOADERS[name])
    _, found = stopped_and_resumed(tmp_path, LOADERS[name], stop)
    assert 0 < len(found) < len(expected) - 1
    assert found == expected[-len(found) :]


@pytest.mark.parametrize("name", ["shuffled", "workers", "stream", "loader with a state", "list"])
def test_endless_passes_continue(tmp_path: Path, name: str) -> None:
    expected, _ = loop(None, LOADERS[name], endless=True)
    assert len(expected) == 12
    _, found = stopped_and_resumed(tmp_path, LOADERS[name], 8, endless=True)
    assert found == expected[-len(found) :]
    assert len(found) == 3  # the request of step 8 is received with step 9


def plain(make: Callable[[], Iterable[Any]]) -> Batches:
    """The same loop without a run."""
    seen: Batches = []
    torch.manual_seed(5)
    random.seed(5)
    nn.Linear(1, 1)
    loader = make()
    torch.rand(1)
    for epoch in range(EPOCHS):
        if isinstance(getattr(loader, "sampler", None), Epochs):
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for batch in loader:
            value = batch.tolist() if isinstance(batch, Tensor) else batch
            seen.append((value, torch.rand(()).item(), random.random()))
        seen.append(("after epoch", epoch, torch.rand(()).item()))
    return seen


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "workers"])
def test_a_run_changes_no_number_of_a_loop(name: str) -> None:
    assert loop(None, LOADERS[name])[0] == plain(LOADERS[name])


def test_what_workers_draw_does_not_depend_on_their_number() -> None:
    one, three = (
        loop(None, lambda count=count: DataLoader(Numbers(), batch_size=3, num_workers=count))[0]  # type: ignore[misc]
        for count in (1, 3)
    )
    assert one == three
    fractions = [number % 1 for batch, *_ in one if isinstance(batch, list) for number in batch]
    assert len(set(fractions)) == len(fractions)


def test_nothing_is_loaded_again(tmp_path: Path) -> None:
    with pytest.raises(Drained):
        loop(tmp_path, LOADERS["shuffled"], 2)
    _, loader = loop(tmp_path, LOADERS["shuffled"])
    assert len(loader.dataset.loaded) == EPOCHS * SAMPLES - 3 * 3


def test_a_script_that_sets_its_samplers_epoch_is_not_overridden() -> None:
    sampler = Epochs(range(6))
    world = attach(env=RankEnv())
    first = []
    with Run(world, model=nn.Linear(1, 1)) as run:
        for epoch in run.epochs(3):
            sampler.set_epoch(epoch + 10)
            first.append(next(run.batches(DataLoader(range(100), sampler=sampler))).item())  # type: ignore[arg-type]
    assert first == [10, 11, 12]


def test_two_loaders_at_once_and_one_after_the_other(tmp_path: Path) -> None:
    def train(stop: int) -> list[Any]:
        torch.manual_seed(2)
        random.seed(2)
        world, model, seen = attach(env=RankEnv(run_id="run", snapshot_dir=tmp_path)), nn.Linear(1, 1), list[Any]()
        loaders = [DataLoader(Numbers(), batch_size=size, shuffle=True) for size in (2, 3, 4)]

        def on_step(step: Step) -> None:
            if step.number == stop:
                os.kill(os.getpid(), signal.SIGTERM)

        with Run(world, model=model, on_step=on_step) as run:
            for _ in run.epochs(2):
                for one, other in zip(run.batches(loaders[0]), run.batches(loaders[1]), strict=False):
                    seen.append((one.tolist(), other.tolist()))
                    run.step()
                for one in run.batches(loaders[2]):
                    seen.append(one.tolist())
                    run.step()
        return seen

    with pytest.raises(Drained):
        train(4)  # it stops after step 6, in the second phase
    found = train(0)
    for path in tmp_path.iterdir():
        path.rename(path.with_name("old-" + path.name))
    expected = train(0)
    assert found == expected[-len(found) :]
    assert len(expected) - len(found) == 7


def test_an_inexact_resume_is_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    for name, make in LOADERS.items():
        loop(None, make)
        notes = capsys.readouterr().out.count("read again and dropped")
        assert notes == (name in {"stream", "list"}), name
    with Run(attach(env=RankEnv()), model=nn.Linear(1, 1)) as run:
        for _ in run.epochs(2):
            for _ in range(3):
                run.step()
    assert capsys.readouterr().out.count("do not come from Run.batches()") == 1


def test_an_iterator_that_has_ended_is_an_error() -> None:
    with Run(attach(env=RankEnv()), model=nn.Linear(1, 1)) as run:
        batches = run.batches(iter([1, 2]))
        assert [next(batches), next(batches)] == [1, 2]
        with pytest.raises(ValueError, match="pass a loader"):
            next(batches)
