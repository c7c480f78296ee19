"""Random numbers that can be told again."""

from __future__ import annotations

import io
import random

import numpy as np
import torch

from trainer.world import rng


def draw() -> tuple[float, float, float]:
    return torch.rand(1).item(), random.random(), float(np.random.rand())  # noqa: NPY002  the global one is meant


def test_a_captured_state_comes_back_through_a_file() -> None:
    file = io.BytesIO()
    torch.save(rng.capture(), file)
    drawn = draw()
    assert draw() != drawn
    file.seek(0)
    rng.restore(torch.load(file, weights_only=True))
    assert draw() == drawn


def test_equal_seeds_give_equal_numbers_everywhere() -> None:
    rng.seed_all(rng.derive("a", 1))
    drawn = draw()
    rng.seed_all(rng.derive("a", 2))
    assert all(a != b for a, b in zip(draw(), drawn, strict=True))
    rng.seed_all(rng.derive("a", 1))
    assert draw() == drawn


def test_derived_seeds_are_the_same_in_every_version() -> None:
    assert rng.derive("epoch", 0, 0) == 5185008691832534246
    assert len({rng.derive("a", 1, 2), rng.derive("a", 12), rng.derive("a", 1), rng.derive("b", 1)}) == 4
    assert all(0 <= rng.derive(number) < 2**63 for number in range(100))
