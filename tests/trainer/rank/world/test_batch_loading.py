"""Random numbers while loading depend on the samples only: not on processes, workers, ranks or a resume."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate
from torchvision import transforms as v1
from torchvision.transforms import v2

from kittrain.job.env import RankEnv
from kittrain.rank.world import batch_loading, rng
from kittrain.rank.world.batch_loading import has_getitems, may_be_random, plain_columns
from kittrain.rank.world.data import Data
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor

SAMPLES, BATCH, EPOCHS = 10, 4, 2  # steps of 4, 4 and 2 samples
V1 = v1.Compose([v1.RandomResizedCrop(4, antialias=True), v1.RandomHorizontalFlip(), v1.ColorJitter(0.5)])
V2 = v2.Compose([v2.RandomResizedCrop(4, antialias=True), v2.RandomHorizontalFlip(), v2.ColorJitter(0.5)])
START = Cursor()
Drawn = dict[tuple[int, int], list[float]]  # by epoch and sample


class Images(Dataset[Tensor]):
    """Random augmentation by all usual generators."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        image = torch.linspace(0, 1, 3 * 8 * 8).reshape(3, 8, 8) + index / 100
        numbers = [random.random(), float(np.random.rand()), torch.rand(()).item()]  # noqa: NPY002  global on purpose
        return torch.cat([V1(image).flatten()[:20], V2(image).flatten()[:20], torch.tensor(numbers)])


class BatchImages(Images):
    """Loads a batch at once, by ``__getitems__``."""

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        return [self[index] for index in indices]


def random_collate(samples: list[Tensor]) -> Tensor:
    """Multiplies by random weights from all usual generators."""
    return torch.stack(samples) * (random.random() + float(np.random.rand()) + torch.rand(len(samples), 1))  # noqa: NPY002


def world(rank: int = 0, size: int = 1) -> World:
    return World(env=RankEnv(rank=rank, world_size=size), device=torch.device("cpu"))


def drawn(
    dataset: Dataset[Tensor],
    cursor: Cursor = START,
    *,
    workers: int = 0,
    size: int = 1,
    seed: int = 7,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Drawn:
    """All ranks' samples from a cursor to the end."""
    data = Data(dataset, batch=BATCH, seed=seed, workers=workers, collate=collate)
    return {
        (batch.span.epoch, sample): values.tolist()
        for rank in range(size)
        for batch in data.batches(cursor, EPOCHS, world(rank, size))
        for sample, values in zip(batch.ids, batch.samples, strict=False)
    }


@pytest.fixture(scope="module")
def uninterrupted() -> Drawn:
    return drawn(Images())


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 2, 4])
def test_a_resume_within_an_epoch_does_not_change_any_sample(uninterrupted: Drawn, workers: int) -> None:
    assert len({tuple(values) for values in uninterrupted.values()}) == SAMPLES * EPOCHS
    resumed = drawn(Images(), Cursor(0, BATCH), workers=workers)
    assert len(resumed) == SAMPLES * EPOCHS - BATCH
    assert resumed.items() <= uninterrupted.items()


def test_samples_depend_on_the_seed_but_not_on_ranks_or_subsets(uninterrupted: Drawn) -> None:
    assert drawn(Images(), size=3) == uninterrupted
    assert drawn(Images(), size=3, workers=1) == uninterrupted
    whole = Subset(Images(), range(SAMPLES))
    assert drawn(whole, size=2) == uninterrupted
    other = drawn(Images(), seed=8)
    assert all(other[key] != uninterrupted[key] for key in uninterrupted)


def test_batches_loaded_or_collated_at_once_depend_on_their_position() -> None:
    for dataset in (BatchImages(), Subset(BatchImages(), range(SAMPLES))):
        straight = drawn(dataset, collate=random_collate)
        assert drawn(dataset, Cursor(0, BATCH), workers=2, collate=random_collate).items() <= straight.items()
        assert len({tuple(values) for values in straight.values()}) == SAMPLES * EPOCHS
    worlds = [world(rank, 2) for rank in (0, 1)]
    plain, weighted = (
        [next(Data(Images(), batch=BATCH, collate=collate).batches(START, 1, one)).samples for one in worlds]
        for collate in (None, random_collate)
    )
    weights = [after / before for before, after in zip(plain, weighted, strict=True)]
    assert not torch.allclose(weights[0], weights[1])  # ranks draw different numbers


def test_loading_does_not_change_the_processs_generators() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), torch.rand(()).item()  # noqa: NPY002

    for dataset in (Images(), BatchImages()):
        rng.seed_all(5)
        expected = [draw() for _ in range(3)]
        rng.seed_all(5)
        loaded = Data(dataset, batch=BATCH, collate=random_collate).batches(Cursor(), 1, world())
        assert [draw() for _ in islice(loaded, 3)] == expected


class Now(Dataset[Tensor]):
    """Draws numbers for one sample only, of one generator, and counts how often each sample is loaded."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.loaded: list[int] = []
        self._draw = draw

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        self.loaded.append(index)
        return torch.tensor([float(index), self._draw() if index == 2 else 0.0], dtype=torch.float64)


class Always(Now):
    def __getitem__(self, index: int) -> Tensor:
        sample = super().__getitem__(index)
        torch.rand(1)
        return sample


DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: torch.rand(()).item(),
    "python": random.random,
    "a normal number of python": lambda: random.gauss(0, 1),
    "numpy": lambda: float(np.random.rand()),  # noqa: NPY002  global on purpose
    "a normal number of numpy": lambda: float(np.random.standard_normal()),  # noqa: NPY002
    "as many as the generator has keys": lambda: float(np.random.rand(312)[0]),  # noqa: NPY002
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("before", [0, 1, 2], ids="{} drawn before".format)
def test_draws_of_a_single_sample_are_noticed(name: str, before: int) -> None:
    draw = DRAWS[name]

    def state() -> Any:
        return torch.get_rng_state().tolist(), random.getstate(), [str(one) for one in np.random.get_state()]  # noqa: NPY002

    np.set_printoptions(threshold=10_000)
    rng.seed_all(11)
    for _ in range(before):
        draw()  # numpy and Python keep back every other normal number
    seen = state()
    assert drawn(Now(draw)) == drawn(Always(draw))
    assert state() == seen


def test_a_data_set_that_draws_nothing_is_loaded_once_and_not_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Now(lambda: 0.0)
    monkeypatch.setattr(rng, "seed_cpu", lambda _: pytest.fail("seeding takes 10 us for each sample"))
    drawn(data)
    assert sorted(data.loaded) == sorted([*range(SAMPLES)] * EPOCHS)


def test_data_sets_that_cannot_draw_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_loading, "DRAWS", None)  # no context manager
    plain = TensorDataset(torch.arange(float(SAMPLES)))
    sets: list[Dataset[Any]] = [Subset(plain, range(SAMPLES)), ConcatDataset([plain])]
    for dataset in sets:
        assert len(list(Data(dataset, batch=BATCH).batches(START, 1, world()))) == -(-SAMPLES // BATCH)


def test_a_data_set_that_draws_has_one_batch_loaded_twice() -> None:
    data = Now(DRAWS["python"])
    drawn(data)
    assert len(data.loaded) <= SAMPLES * EPOCHS + BATCH


@pytest.mark.parametrize("shape", [(), (3,), (1, 28, 28), (3, 5, 7)], ids=str)
def test_tensors_that_are_taken_at_once_are_as_collated(shape: tuple[int, ...]) -> None:
    tensors = torch.rand(SAMPLES, *shape), torch.arange(SAMPLES)
    dataset = TensorDataset(*tensors)
    assert plain_columns(dataset) is not None
    for batch in Data(dataset, batch=BATCH).batches(Cursor(), 1, world()):
        collated = default_collate([dataset[one] for one in batch.ids])
        assert type(batch.samples) is type(collated)
        for ours, theirs in zip(batch.samples, collated, strict=True):
            assert torch.equal(ours, theirs)
            assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())


def test_only_plain_contiguous_tensors_are_taken_at_once() -> None:
    plain = torch.rand(SAMPLES, 3, 4, 4)
    others = [plain.contiguous(memory_format=torch.channels_last), plain.clone().requires_grad_(), plain.to_sparse()]
    assert [plain_columns(TensorDataset(one)) for one in others] == [None] * 3
    assert plain_columns(Subset(TensorDataset(plain), [0])) is None


def test_only_plain_tensors_are_known_to_be_deterministic() -> None:
    plain = TensorDataset(torch.zeros(3))

    class Noisy(TensorDataset):
        pass

    assert not may_be_random(plain)
    assert not may_be_random(Subset(ConcatDataset([plain, Subset(plain, [0])]), [1]))
    assert may_be_random(Noisy(torch.zeros(3)))
    assert may_be_random(Subset(ConcatDataset([plain, Noisy(torch.zeros(3))]), [1]))
    assert not has_getitems(Subset(Images(), [0]))
    assert has_getitems(Subset(Subset(BatchImages(), [0]), [0]))
