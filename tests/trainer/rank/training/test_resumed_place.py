"""A pass that other ranks continue takes each sample of its epoch once; what cannot be continued is an error."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    WeightedRandomSampler,
)

from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.training.loaders import Loaders, Positions
from kittrain.rank.training.sample_order import PositionError
from kittrain.rank.world.rng import seed_all

SAMPLES: Final = 103
SIZES: Final = (1, 2, 3, 4)
EPOCH: Final = 1  # in which the number of ranks changes
Make = Callable[[int, int], Iterable[Any]]  # a rank's loader, from the number of ranks and the rank
IDS: Any = range(SAMPLES)


def loader(sampler: Sampler[Any] | None, batch: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(IDS, batch_size=batch, sampler=sampler, **options)


def ids_of(batch: Any) -> list[int]:
    ids: list[int] = torch.as_tensor(batch).reshape(-1).tolist()
    return ids


class Ranks:
    """All ranks, one after the other in this process.

    Args:
        make: see ``Make``.
        size: number of ranks.
        saved: their positions; None: they start.
        resize: see ``Run.batches``.
    """

    def __init__(self, make: Make, size: int, saved: list[Positions] | None = None, **resize: Any) -> None:
        self.loaders = []
        self.passes: list[Iterator[Any]] = []
        for rank in range(size):
            torch.manual_seed(rank)
            world = World(env=RankEnv(rank=rank, world_size=size), device=torch.device("cpu"))
            own = Loaders(world, lambda: seed_all(9))  # the loop has drawn numbers of its own
            if saved:
                others = saved if len(saved) != size else []
                own.restore(saved[rank if rank < len(saved) else 0], others, ranks=len(saved))
            self.loaders.append(own)
            self.passes.append(own.one_pass(make(size, rank), EPOCH, **resize))

    def step(self, micro: int = 1) -> list[int]:
        """The samples that all ranks take in a step; none at the end of the epoch."""
        taken: list[int] = []
        for own, one in zip(self.loaders, self.passes, strict=True):
            batches = list(itertools.islice(one, micro))
            taken += itertools.chain.from_iterable(map(ids_of, batches))
            if batches:
                own.end_step()
        return taken

    def positions(self) -> list[Positions]:
        return [own.positions() for own in self.loaders]


def epoch_of(make: Make, sizes: Sequence[int], micro: int = 1, steps: int = 2, **resize: Any) -> list[int]:
    """The samples of an epoch in which each number of ranks takes some steps, and the last one the rest."""
    saved, taken = None, list[int]()
    for number, size in enumerate(sizes):
        ranks = Ranks(make, size, saved, **resize)
        for _ in range(steps if number < len(sizes) - 1 else SAMPLES):
            taken += ranks.step(micro)
        saved = ranks.positions()
    return taken


@pytest.mark.parametrize("micro", [1, pytest.param(2, marks=pytest.mark.wide)])
@pytest.mark.parametrize("divided", [True, False], ids=["divided batch", "fixed batch"])
@pytest.mark.parametrize("drop", [True, False], ids=["drop_last", "padded"])
def test_each_sample_of_an_epoch_counts_once_on_any_numbers_of_ranks(*, drop: bool, divided: bool, micro: int) -> None:
    def make(size: int, rank: int) -> DataLoader[Any]:
        sampler: Any = DistributedSampler(IDS, size, rank, seed=3, drop_last=drop)
        return loader(sampler, 12 // size if divided else 3)

    order_sampler: Any = DistributedSampler(IDS, 1, 0, seed=3)
    order_sampler.set_epoch(EPOCH)
    order = list(order_sampler)
    for sizes in itertools.product(SIZES, repeat=3):
        taken = epoch_of(make, sizes, micro)
        left = SAMPLES - sum(two_steps(size, divided=divided, micro=micro) for size in sizes[:2])
        padded = order + order[: -left % sizes[-1]]  # with the first ones
        expected = order[: SAMPLES - left % sizes[-1]] if drop else padded
        assert Counter(taken) == Counter(expected), sizes


def two_steps(size: int, *, divided: bool, micro: int) -> int:
    return 2 * micro * (12 // size if divided else 3) * size


@pytest.mark.parametrize("divided", [True, False])
def test_a_loader_that_drops_short_batches_takes_no_sample_twice(*, divided: bool) -> None:
    def make(size: int, rank: int) -> DataLoader[Any]:
        sampler: Any = DistributedSampler(IDS, size, rank, drop_last=True)
        return loader(sampler, 12 // size if divided else 4, drop_last=True)

    for sizes in itertools.product(SIZES, repeat=3):
        taken = epoch_of(make, sizes)
        batch = 12 // sizes[-1] if divided else 4
        assert max(Counter(taken).values()) == 1
        assert SAMPLES - len(taken) < sizes[-1] * batch + sizes[-1], sizes


def test_a_resize_at_the_end_of_an_epoch_takes_nothing_more() -> None:
    def make(size: int, rank: int) -> DataLoader[Any]:
        return loader(DistributedSampler(IDS, size, rank, drop_last=True), 12 // size, drop_last=True)

    for before, after in itertools.permutations(SIZES, 2):
        assert epoch_of(make, [before, after], steps=SAMPLES) == epoch_of(make, [before])


OWN: dict[str, Make] = {
    "shuffled": lambda _size, _rank: loader(None, 5, shuffle=True),
    "shuffled, divided batch": lambda size, _rank: loader(None, 12 // size, shuffle=True),
    "sequential": lambda _size, _rank: loader(None, 5),
    "single samples": lambda _size, _rank: DataLoader(IDS, batch_size=None, sampler=RandomSampler(IDS)),
    "own batches": lambda _size, _rank: DataLoader(
        IDS, batch_sampler=Batches(RandomSampler(IDS, generator=torch.Generator().manual_seed(1)), 4, drop_last=False)
    ),
}


class Batches(BatchSampler):
    """A script's own."""


@pytest.mark.parametrize("name", OWN)
def test_a_loader_that_does_not_depend_on_the_ranks_continues_on_each_rank(name: str) -> None:
    for before, after in itertools.permutations(SIZES, 2):
        ranks = Ranks(OWN[name], before)
        taken: list[list[int]] = [[] for _ in range(max(before, after))]
        for own, one, mine in zip(ranks.loaders, ranks.passes, taken, strict=False):
            for batch in itertools.islice(one, 2):
                mine.extend(ids_of(batch))
            own.end_step()
        taken[before:] = [list(taken[0]) for _ in taken[before:]]  # new ranks continue as rank 0
        resumed = Ranks(OWN[name], after, ranks.positions())
        for one, mine in zip(resumed.passes, taken, strict=False):
            mine.extend(itertools.chain.from_iterable(map(ids_of, one)))
            assert sorted(mine) == list(IDS)


@pytest.mark.parametrize("given", [False, True])
def test_another_batch_size_continues_with_the_samples_that_are_left(*, given: bool) -> None:
    def make(batch: int) -> Make:
        generator = torch.Generator().manual_seed(8) if given else None
        return lambda _size, _rank: loader(None, batch, shuffle=True, generator=generator)

    for before, after in itertools.permutations((3, 5, 7), 2):
        ranks = Ranks(make(before), 1)
        taken = ranks.step(2)
        resumed = Ranks(make(after), 1, ranks.positions())
        taken += [sample for _ in range(SAMPLES) for sample in resumed.step()]
        assert sorted(taken) == list(IDS)


class Stream(IterableDataset[int]):
    def __init__(self, size: int, rank: int) -> None:
        self._ids = range(rank, SAMPLES, size)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)


class Strided(Sampler[int]):
    """Divides samples among ranks in a way of its own."""

    def __init__(self, size: int, rank: int) -> None:
        self._ids = range(rank, SAMPLES, size)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


class Blocks(DistributedSampler[int]):
    """Gives each rank a block instead of every W-th sample."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rank * self.num_samples, (self.rank + 1) * self.num_samples))


UNKNOWN: dict[str, tuple[Make, str]] = {
    "a stream": (lambda size, rank: DataLoader(Stream(size, rank), batch_size=4), "it is not known which"),
    "an iterator": (lambda size, rank: iter([torch.tensor([size, rank])] * 8), "it is not known which"),
    "a list for each rank": (
        lambda size, rank: [torch.tensor([rank])] * (24 // size),
        "it is not known which of this rank's samples list",
    ),
    "a part of the data": (
        lambda size, rank: loader(None, 4, shuffle=True).__class__(
            Subset(IDS, list(range(rank, 102, size))), batch_size=4, shuffle=True
        ),
        "continuing it|samples in a pass, not",
    ),
    "a sampler of the script": (lambda size, rank: loader(Strided(size, rank), 4), "samples in a pass, not"),
    "another division": (
        lambda size, rank: loader(Blocks(IDS, size, rank, drop_last=True), 4),
        "samples in a pass, not",
    ),
    "own batches of a rank's samples": (
        lambda size, rank: DataLoader(IDS, batch_sampler=Batches(Strided(size, rank), 4, drop_last=False)),
        "it is not known which",
    ),
    "another sampler for one rank": (
        lambda size, rank: loader(DistributedSampler(IDS, size, rank) if size > 1 else None, 4),
        "that of DistributedSampler, and is that of SequentialSampler",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_continued_is_an_error_that_says_why_and_what_to_do(name: str) -> None:
    make, message = UNKNOWN[name]
    with pytest.raises(PositionError, match=message) as caught:
        epoch_of(make, [3, 1])
    assert (
        "use the same sampler" in str(caught.value)
        or "Data" in str(caught.value)
        or "same loaders" in str(caught.value)
    )
    assert epoch_of(make, [2, 2])


@pytest.mark.parametrize("name", ["a stream", "a list for each rank", "a sampler of the script"])
def test_on_request_about_the_same_share_is_left(name: str) -> None:
    make, _ = UNKNOWN[name]
    ranks = Ranks(make, 4)
    taken = ranks.step() + ranks.step()
    left = list(itertools.chain.from_iterable(Ranks(make, 2, ranks.positions(), resize="share").passes))
    found = len(taken) / 2 + sum(one.numel() for one in left) / 2
    assert found == pytest.approx(len(list(itertools.chain.from_iterable(make(2, 0)))), abs=5)


def test_samples_drawn_with_replacement_continue_after_the_same_share() -> None:
    def make(size: int, _rank: int) -> DataLoader[Any]:
        return loader(WeightedRandomSampler([1.0] * SAMPLES, 96 // size), 4)

    assert len(epoch_of(make, [4, 2, 3, 1])) == 96


def test_ranks_that_took_different_numbers_cannot_be_resized() -> None:
    def make(size: int, rank: int) -> DataLoader[Any]:
        return loader(DistributedSampler(IDS, size, rank), 4 + rank)

    with pytest.raises(PositionError, match=r"different numbers of samples .* \(8, 10, 12\)"):
        epoch_of(make, [3, 1])


def test_a_sampler_of_fewer_ranks_than_the_world_is_divided_among_its_own() -> None:
    def make(size: int, rank: int) -> DataLoader[Any]:
        return loader(DistributedSampler(IDS, size // 2, rank // 2), 4)

    taken = Counter(epoch_of(make, [4, 2]))
    assert set(taken) == set(IDS)
    assert sum(taken.values()) == 2 * SAMPLES


def test_positions_of_earlier_versions_are_continued_where_they_were_right() -> None:
    def make(size: int, rank: int) -> DataLoader[Any]:
        return loader(DistributedSampler(IDS[:96], size, rank), 3)

    def formerly(one: Positions) -> Any:
        """A list of passes, with a count of batches."""
        return [
            {key: each[key] for key in ("rng", "generators", "samplers", "epoch", "taken")} for each in one["passes"]
        ]

    for before, after in itertools.product(SIZES, repeat=2):
        ranks = Ranks(make, before)
        taken = [sample for _ in range(4) for sample in ranks.step()]  # a fixed batch, and steps that all can divide
        if after > 1 and 4 * before % after:
            continue
        resumed = Ranks(make, after, [formerly(one) for one in ranks.positions()])
        taken += [sample for _ in range(SAMPLES) for sample in resumed.step()]
        assert Counter(taken) == Counter(IDS[:96])


def test_the_number_of_a_batch_ends_with_the_loaders_length_after_a_resize() -> None:
    def make(size: int, rank: int) -> DataLoader[Any]:
        return loader(DistributedSampler(IDS, size, rank), 12 // size)

    loaders: list[Any] = []

    def kept(size: int, rank: int) -> Any:
        loaders.append(make(size, rank))
        return loaders[-1]

    ranks = Ranks(make, 3)
    ranks.step()
    resumed = Ranks(kept, 2, ranks.positions())
    numbers = [resumed.loaders[0].number(loaders[0]) for _ in resumed.passes[0]]
    assert numbers == list(range(1, len(loaders[0])))
