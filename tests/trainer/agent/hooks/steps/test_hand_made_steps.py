"""What a rank shows of its training: updates without an optimizer, and whether it has met other ranks since."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from kittrain.system.exchanges import MANY
from tests.trainer.hooked import run_warm
from tests.trainer.nodes import free_port

pytestmark = pytest.mark.slow

BY_HAND = """
import torch
model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 2))
a = torch.ones(3, requires_grad=True)
for step in range(9):
    loss = model(torch.tensor([1])).square().sum() + (a * 3).square().sum()
    loss.backward()
    {update}
    model.zero_grad()
"""
UPDATES = {
    "data": "for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1)",
    "no_grad": "with torch.no_grad(): a -= 0.01 * a.grad; a.grad = None",
}


@pytest.mark.parametrize("update", UPDATES)
def test_updates_without_an_optimizer_are_seen(tmp_path: Path, update: str) -> None:
    assert run_warm(tmp_path, BY_HAND.format(update=UPDATES[update])).updates == 8


@pytest.mark.parametrize(
    "update", ["pass", "image = torch.ones(2, requires_grad=True); model(torch.tensor([2])).sum().backward()"]
)
def test_gradients_that_change_no_parameters_are_no_updates(tmp_path: Path, update: str) -> None:
    assert run_warm(tmp_path, BY_HAND.format(update=update)).updates == 0


IN_GROUP = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
{before}
dist.init_process_group({backend})
dist.broadcast(torch.ones(1), 0)
model = torch.nn.Linear(2, 1)
{model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    loss = model(torch.ones(1, 2)).sum()
    loss.backward({gradient})
    {after}
    optimizer.step()
{end}
"""
WHOLE = "for p in model.parameters(): dist.all_reduce(p.data)"
PLAIN = {"before": "", "backend": "'gloo'", "model": "", "gradient": "", "after": "", "end": ""}


@pytest.mark.parametrize(
    ("script", "least", "most"),
    [
        pytest.param({}, 0, 0, id="never used"),
        pytest.param({"end": "dist.destroy_process_group()"}, 0, 0, id="never used, and destroyed"),
        pytest.param({"model": "model = DistributedDataParallel(model)"}, 5, 99, id="DDP"),
        pytest.param({"after": "for p in model.parameters(): dist.all_reduce(p.grad)"}, 5, 5, id="averaged by hand"),
        pytest.param({"end": "dist.all_reduce(model.weight.data)"}, 0, 0, id="a part at the end"),
        pytest.param({"end": WHOLE}, 1, 1, id="at the end"),
        pytest.param({"end": f"{WHOLE}\ndist.destroy_process_group()"}, 1, 1, id="then destroyed"),
        pytest.param({"gradient": "torch.ones(())"}, MANY, MANY + 99, id="a stage of a pipeline"),
        pytest.param({"before": "sys.modules['horovod'] = sys"}, MANY, MANY + 99, id="another framework"),
    ],
)
def test_what_ranks_exchange_after_the_first_backward_pass_is_counted(
    tmp_path: Path, script: dict[str, str], least: int, most: int
) -> None:
    found = run_warm(tmp_path, dedent(IN_GROUP).format(**(PLAIN | script)), MASTER_PORT=str(free_port()))
    assert found.updates == 5
    assert least <= found.met <= most
