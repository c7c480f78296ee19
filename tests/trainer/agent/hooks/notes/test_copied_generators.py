"""A generator in a data set, of which each worker has a copy; and those that differ, or that no sample uses."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

from kittrain.agent.hooks.notes.copied_generators import CopiedGenerators
from kittrain.outcome.rank_output import SAME_DRAWS, trains_nothing


class Noise(Dataset[float]):
    """Samples that are drawn."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def __len__(self) -> int:
        return 4

    def __getitem__(self, _index: int) -> float:
        if isinstance(self.rng, torch.Generator):
            return float(torch.rand(1, generator=self.rng))
        return float(self.rng.random() if hasattr(self.rng, "random") else self.rng.random_sample())


class Made(Noise):
    """Samples that were drawn before."""

    def __init__(self, rng: Any) -> None:
        super().__init__(rng)
        self.all = [rng.random() for _ in range(4)]

    def __getitem__(self, index: int) -> float:
        return float(self.all[index])


class Transformed(Dataset[float]):
    """Samples that a transform changes."""

    def __init__(self, rng: Any) -> None:
        self.noise = Gain(rng)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, _index: int) -> float:
        return self.noise(1.0)


class Gain:
    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def __call__(self, x: float) -> float:
        return x * float(self.rng.random())


def numbers() -> np.random.Generator:
    return np.random.default_rng(0)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def passes(
    dataset: Any, *, steps: bool = True, between: Callable[[], object] = lambda: None, **options: Any
) -> tuple[CopiedGenerators, list[list[float]]]:
    own: Any = type("DataLoader", (DataLoader,), {"__iter__": DataLoader.__iter__})
    taken = 0
    noted = CopiedGenerators(lambda: taken)
    noted.watch(types.SimpleNamespace(DataLoader=own))  # type: ignore[arg-type]
    loader = own(dataset, batch_size=4, **{"num_workers": 1, "shuffle": True, **options})
    seen = []
    for _ in range(2):
        seen += [batch.tolist() for batch in loader]
        taken += steps
        between()
    return noted, seen


@pytest.mark.parametrize("make", [numbers, seeded, lambda: random.Random(0), lambda: np.random.RandomState(0)])
@pytest.mark.parametrize("depth", [0, 2])
def test_workers_draw_the_same_in_each_pass(
    make: Callable[[], Any], depth: int, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset: Any = Noise(make())
    for _ in range(depth):
        dataset = Subset(dataset, range(4))
    noted, (first, second) = passes(dataset)
    assert first == second
    noted.tell()
    told = f"{SAME_DRAWS}each has a copy of Noise.rng"
    assert capsys.readouterr().err == f"note: {told}\n"
    assert trains_nothing([f"note: {told}\n"]) == told


def test_a_transform_has_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    passes(Transformed(numbers()))[0].tell()
    assert "each has a copy of Gain.rng" in capsys.readouterr().err


def test_a_sampler_that_shuffles_counts(capsys: pytest.CaptureFixture[str]) -> None:
    sampler = DistributedSampler(range(4), num_replicas=1, rank=0)  # type: ignore[arg-type,var-annotated]
    passes(Noise(numbers()), shuffle=False, sampler=sampler)[0].tell()
    assert "each has a copy of Noise.rng" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"persistent_workers": True},
        {"shuffle": False},  # as what validates
        {"steps": False},
        {"worker_init_fn": lambda _: None},  # it may seed
    ],
)
def test_what_draws_on_or_may_be_meant_is_left_out(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    passes(Noise(numbers()), **options)[0].tell()
    assert capsys.readouterr().err == ""


def test_a_generator_that_is_set_anew_in_each_epoch_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = Noise(numbers())
    noted, (first, second) = passes(dataset, between=lambda: setattr(dataset, "rng", np.random.default_rng(1)))
    assert first != second
    noted.tell()
    assert capsys.readouterr().err == ""


def test_a_generator_that_no_sample_uses_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    passes(Made(numbers()))[0].tell()
    assert capsys.readouterr().err == ""
