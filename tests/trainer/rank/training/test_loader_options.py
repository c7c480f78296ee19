"""A DataLoader with any options continues after any step with the batches and numbers of an undisturbed loop.

The loop is resumed within this process, from what a snapshot would hold; ``test_run`` kills real ranks.
"""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler, WeightedRandomSampler

from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.training.loaders import Loaders
from kittrain.rank.world import rng
from tests.trainer.rank.training.test_loaders import Curriculum, Numbers, PositionedStream, Stream

EPOCHS: Final = 3
SAMPLES: Any = range(14)
Entries = list[Any]


class Eager(Sampler[int]):
    """Draws its order from the global generator as soon as an iteration begins, not with the first index."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(14).tolist())

    def __len__(self) -> int:
        return 14


class Lazy(Eager):
    """Draws each index when it is needed."""

    def __iter__(self) -> Iterator[int]:
        return (int(torch.randint(14, ())) for _ in range(14))


class Pairs(Sampler[list[int]]):
    """A script's own sampler of batches."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(14).tolist()
        return (order[index : index + 2] for index in range(0, 14, 2))

    def __len__(self) -> int:
        return 7


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(8)


SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffle": lambda: {"shuffle": True, "batch_size": 3},
    "shuffle, generator": lambda: {"shuffle": True, "batch_size": 3, "generator": generator()},
    "generator of the loader only": lambda: {
        "sampler": RandomSampler(SAMPLES),
        "batch_size": 3,
        "generator": generator(),
    },
    "with replacement": lambda: {
        "sampler": RandomSampler(SAMPLES, replacement=True, num_samples=70, generator=generator()),
        "batch_size": 9,
    },
    "several passes": lambda: {"sampler": RandomSampler(SAMPLES, num_samples=20), "batch_size": 3},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1, 2] * 7, 14), "batch_size": 3},
    "distributed": lambda: {"sampler": DistributedSampler(SAMPLES, 3, 1), "batch_size": 1},
    "eager": lambda: {"sampler": Eager(), "batch_size": 3, "drop_last": True},
    "lazy": lambda: {"sampler": Lazy(), "batch_size": 3},
    "with a state": lambda: {"sampler": Curriculum(), "batch_size": 1},
    "batch sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(SAMPLES), 4, drop_last=False)},
    "own batch sampler": lambda: {"batch_sampler": Pairs()},
    "single samples": lambda: {"batch_size": None, "shuffle": True},
}
WORKERS: dict[str, dict[str, Any]] = {
    "no workers": {},
    "workers": {"num_workers": 2},
    "persistent workers": {"num_workers": 1, "persistent_workers": True},
    "persistent workers, far ahead": {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 5},
    "in any order": {"num_workers": 2, "in_order": False, "pin_memory": True},
}


class Loop:
    """Takes batches, draws numbers, and validates within each epoch.

    Attributes:
        entries: all that it got, in order.
        saved: after each step, the number of entries and what a snapshot would hold.
    """

    def __init__(self, make: Callable[[], Any], validation: Callable[[], Any], saved: bytes | None = None) -> None:
        torch.manual_seed(5)
        random.seed(5)
        self.entries: Entries = []
        self.saved: list[tuple[int, bytes]] = []
        self._loader, self._validation = make(), validation()
        state = torch.load(io.BytesIO(saved), weights_only=True) if saved else None
        self._loaders = Loaders(
            World(env=RankEnv(), device=torch.device("cpu")), lambda: rng.restore(state["rng"]) if state else None
        )
        begin = 0
        if state:
            begin = state["epoch"]
            self._loaders.restore(state["loaders"], ranks=1)
            rng.restore(state["rng"])
        self._run(begin, state["step"] if state else 0)

    def _run(self, begin: int, step: int) -> None:
        for epoch in range(begin, EPOCHS):
            for batch in self._loaders.one_pass(self._loader, epoch):
                step += 1
                self._record(batch)
                self._loaders.end_step()
                if step % 3 == 0:
                    self._validate(epoch)
                self._save(epoch, step)
            self._validate(epoch)
            self._loaders.end_epoch()

    def _record(self, batch: Any) -> None:
        self.entries.append((torch.as_tensor(batch).tolist(), torch.rand(()).item(), random.random()))

    def _validate(self, epoch: int) -> None:
        for batch in self._loaders.one_pass(self._validation, epoch):
            self._record(batch)

    def _save(self, epoch: int, step: int) -> None:
        buffer = io.BytesIO()
        state = {"rng": rng.capture(), "loaders": self._loaders.positions(), "epoch": epoch, "step": step}
        torch.save(state, buffer)
        self.saved.append((len(self.entries), buffer.getvalue()))


def compare(make: Callable[[], Any], validation: Callable[[], Any] = lambda: [7.0]) -> None:
    """Resume after the first, a middle and the last step of each epoch."""
    quiet = Loop(make, validation)
    by_epoch = [
        list(group) for _, group in itertools.groupby(quiet.saved, lambda one: torch.load(io.BytesIO(one[1]))["epoch"])
    ]
    assert len(by_epoch) == EPOCHS
    for saved in by_epoch:
        for number, state in (saved[0], saved[len(saved) // 2], saved[-1]):
            assert Loop(make, validation, state).entries == quiet.entries[number:]


QUICK = [
    *(("no workers", sampler) for sampler in SAMPLERS),
    ("persistent workers", "shuffle"),
    ("persistent workers, far ahead", "with a state"),
]
WIDE = [("workers", "lazy"), ("in any order", "shuffle, generator")]
ALL = [(workers, sampler) for workers in WORKERS for sampler in SAMPLERS]


@pytest.mark.parametrize(
    ("workers", "sampler"),
    [
        *QUICK,
        *(pytest.param(*one, marks=pytest.mark.wide) for one in WIDE),
        *(pytest.param(*one, marks=[pytest.mark.slow, pytest.mark.long]) for one in ALL if one not in QUICK + WIDE),
    ],
)
def test_any_options(workers: str, sampler: str) -> None:
    compare(lambda: DataLoader(Numbers(), **SAMPLERS[sampler](), **WORKERS[workers]))


@pytest.mark.parametrize("workers", ["no workers", pytest.param("persistent workers", marks=pytest.mark.wide)])
def test_a_validation_with_a_generator_and_workers_of_its_own(workers: str) -> None:
    compare(
        lambda: DataLoader(Numbers(), batch_size=3, shuffle=True, **WORKERS[workers]),
        lambda: DataLoader(Numbers(), batch_size=5, shuffle=True, generator=generator(), **WORKERS[workers]),
    )


@pytest.mark.parametrize("make", [Stream, PositionedStream])
def test_a_stream_in_this_process(make: Callable[[], Any]) -> None:
    compare(lambda: DataLoader(make(), batch_size=3))


class Fixed(Stream):
    """The same samples in each pass."""

    def __iter__(self) -> Iterator[float]:
        return iter([float(number) for number in range(14)])


@pytest.mark.parametrize("workers", ["workers", "persistent workers"])
@pytest.mark.parametrize("given", [pytest.param(False, marks=pytest.mark.wide), True])
def test_a_stream_with_workers(workers: str, *, given: bool) -> None:
    options = WORKERS[workers]
    compare(lambda: DataLoader(Fixed(), batch_size=3, generator=generator() if given else None, **options))
