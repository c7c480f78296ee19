"""A step's samples are freed before the next step's are loaded: two batches at once would double their memory."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset, default_collate

from kittrain import Data, Training, join
from kittrain.job.env import RankEnv


@pytest.mark.parametrize(("virtual_ranks", "accumulate"), [(0, 1), (0, 2), (2, 1)])
def test_no_batch_is_alive_when_the_next_one_is_loaded(virtual_ranks: int, accumulate: int) -> None:
    loaded: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def collate(samples: list[Any]) -> Any:
        alive.append(sum(one() is not None for one in loaded))
        batch = default_collate(samples)
        loaded.append(weakref.ref(batch[0]))
        return batch

    def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
        inputs, targets = batch
        return nn.functional.mse_loss(model(inputs), targets)

    with join(seed=0, env=RankEnv()) as world:
        model = nn.Linear(5, 1)
        data = Data(TensorDataset(torch.rand(24, 5), torch.rand(24, 1)), batch=6, collate=collate)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        options = {"virtual_ranks": virtual_ranks, "accumulate": accumulate}
        Training(world, model, optimizer, loss, data, epochs=2, **options).fit()  # type: ignore[arg-type]
    assert len(alive) >= 8
    assert max(alive) < max(accumulate, virtual_ranks, 1), "only the parts of one step"
