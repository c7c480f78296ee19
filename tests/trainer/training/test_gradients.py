"""What the ranks tell each other rides along with their gradients, and changes none of them."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork, placed
from trainer import Data, join
from trainer.training.gradients import Averaged
from trainer.training.pulse import Pulse, Step, Word
from trainer.world.order import Cursor

RANKS = 3
EPOCHS = 4  # of one step: DDP makes its buckets anew behind the first one, and keeps them then
SAMPLES = 7  # 3, 2 and 2 of them a rank
WORDS = [Word(written=True, kept=True), Word(written=True, stop=True), Word(written=True, due=True)]  # by rank


class Model(nn.Linear):
    """Counts its forward passes, each rank with steps of its own; the count is a buffer, and so rank 0's."""

    def __init__(self, rank: int, dtype: torch.dtype) -> None:
        super().__init__(5, 1, dtype=dtype)
        self.forwards: Tensor
        self.register_buffer("forwards", torch.zeros(()))
        self._by = 1 + rank

    def forward(self, inputs: Tensor) -> Tensor:
        self.forwards += self._by
        return super().forward(inputs)


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    inputs, targets = batch
    return functional.mse_loss(model(inputs), targets)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_loss_and_words_are_averaged_beside_the_gradients(tmp_path: Path, dtype: torch.dtype) -> None:
    alone = learned(dtype)
    port = free_port()
    ranks = [fork(learn_as, rank, port, dtype, tmp_path / f"{rank}.pt") for rank in range(RANKS)]
    assert [finish(rank) for rank in ranks] == [0] * RANKS
    rtol, atol = (2e-2, 1e-2) if dtype == torch.bfloat16 else (1e-5, 1e-6)
    for rank in range(RANKS):
        told = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        torch.testing.assert_close(told["gradients"], alone["gradients"], rtol=rtol, atol=atol)
        torch.testing.assert_close(told["losses"], alone["losses"], rtol=rtol, atol=atol)
        assert told["names"] == alone["names"] == ["weight", "bias"]
        assert told["forwards"] == EPOCHS + rank  # its own last ones, behind rank 0's before
        assert told["heard"] == [asdict(Word(stop=True, written=True, due=True))] * EPOCHS


def learn_as(rank: int, port: int, dtype: torch.dtype, out: Path) -> None:
    os.environ.update({**placed(rank, RANKS, port), "KIT_BACKEND": "gloo"})

    def unexpected(*_: Any, **__: Any) -> None:
        raise AssertionError("a step has no collective beside DDP's own")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", unexpected)
        torch.save(learned(dtype, rank), out)


def learned(dtype: torch.dtype, rank: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    samples = TensorDataset(*(torch.rand(SAMPLES, width, generator=generator).to(dtype) for width in (5, 1)))
    with join(seed=1) as world:
        model = Model(rank, dtype)
        gradients, pulse = Averaged(world, model, loss, Data(samples, batch=SAMPLES)), Pulse(world)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found, losses, heard = list[Tensor](), list[float](), list[dict[str, bool]]()

        def read(step: Step | None) -> None:
            if step:
                losses.append(step.loss)
                heard.append(asdict(pulse.heard))

        for number, parts in enumerate(gradients.batches(Cursor(0, 0), EPOCHS)):
            optimizer.zero_grad()
            mean = gradients.learn(parts, lambda: WORDS[rank])
            found += [one.grad.clone() for one in model.parameters() if one.grad is not None]
            optimizer.step()
            read(pulse.send(Step(number=number, generation=1, cursor=Cursor(0, 0), ids=[], size=SAMPLES), mean))
        read(pulse.flush())
        names = [name for name, _ in model.named_parameters()]
        forwards = int(model.forwards)
    return {"gradients": found, "losses": losses, "heard": heard, "names": names, "forwards": forwards}
