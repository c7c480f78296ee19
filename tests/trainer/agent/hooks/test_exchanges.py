"""Which scripts exchange gradients or models, and which only metrics, as the hooks of their ranks tell them apart."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from kittrain.agent.hooks.script_progress import trains_alone
from tests.trainer.hooked import run_warm
from tests.trainer.nodes import free_port

pytestmark = pytest.mark.slow

SCRIPT = """
import contextlib, torch, torch.distributed as dist
from torch.distributed import all_reduce
dist.init_process_group("gloo")
model = plain = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 1))
{before}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    for micro in range({micro}):
        last = micro + 1 == {micro}
        with contextlib.nullcontext() if last or model is plain else model.no_sync():
            loss = model(torch.ones(2, 512)).square().sum()
{forward}
            loss.backward()
{backward}
    optimizer.step()
    optimizer.zero_grad()
{after}
dist.destroy_process_group()
"""
DDP = "from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(model)"
METRICS = "all_reduce(torch.stack([loss.detach(), torch.ones(()), torch.ones(())]))"
EACH = "for one in model.parameters(): all_reduce(one.grad)"
FLAT = "flat = torch.cat([one.grad.flatten() for one in model.parameters()])\n"


def trained(
    folder: Path,
    *,
    before: str = "",
    forward: str = "",
    backward: str = "",
    after: str = "",
    steps: int = 250,
    micro: int = 1,
) -> bool:
    """Whether a rank of this script, if it were one of several, would be taken to train alone."""
    levels = {"forward": (forward, 12), "backward": (backward, 4), "after": (after, 4)}
    parts = {name: indent(text, " " * level) for name, (text, level) in levels.items()}
    script = SCRIPT.format(before=before, steps=steps, micro=micro, **parts)
    seen = run_warm(folder, script, MASTER_PORT=str(free_port()))
    assert (seen.updates, seen.group) == (steps, 1)
    return trains_alone(updates=seen.updates, met=seen.met, group=4, world=4, ended=True)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"after": METRICS}, id="after each step"),
        pytest.param({"forward": METRICS}, id="in each forward pass", marks=pytest.mark.wide),
        pytest.param(
            {"after": f"dist.barrier()\nwork = {METRICS[:-1]}, async_op=True)\nwork.wait()"},
            id="and barriers",
            marks=pytest.mark.wide,
        ),
        pytest.param(
            {"after": "dist.all_gather_object([None], {'accuracy': 0.5})"}, id="as objects", marks=pytest.mark.wide
        ),
        pytest.param(
            {"before": "for one in model.parameters(): dist.broadcast(one.detach(), 0)", "after": METRICS},
            id="and one model at the beginning",
            marks=pytest.mark.wide,
        ),
        pytest.param(
            {"before": "group = dist.new_group([0])", "after": f"{METRICS[:-1]}, group=group)"}, id="in a group"
        ),
    ],
)
def test_ranks_that_exchange_metrics_train_alone(tmp_path: Path, parts: dict[str, Any]) -> None:
    assert trained(tmp_path, **parts)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"before": DDP}, id="DDP"),
        pytest.param({"before": DDP, "after": METRICS}, id="DDP and metrics", marks=pytest.mark.wide),
        pytest.param({"before": DDP, "steps": 2, "micro": 64}, id="DDP, accumulating", marks=pytest.mark.wide),
        pytest.param({"backward": EACH, "after": METRICS}, id="each gradient"),
        pytest.param(
            {"backward": EACH, "steps": 2, "micro": 64}, id="each gradient, accumulating", marks=pytest.mark.wide
        ),
        pytest.param({"backward": FLAT + "all_reduce(flat)"}, id="all gradients at once", marks=pytest.mark.wide),
        pytest.param({"backward": FLAT + "all_reduce(flat.half())"}, id="in half precision", marks=pytest.mark.wide),
        pytest.param({"backward": FLAT + "all_reduce(flat[::100].contiguous())"}, id="a hundredth of them"),
        pytest.param(
            {"backward": FLAT + "dist.all_gather([flat.clone()], flat)"}, id="gathered", marks=pytest.mark.wide
        ),
        pytest.param(
            {"after": "if step % 100 == 99:\n    for one in model.parameters(): all_reduce(one.detach())\n" + METRICS},
            id="models, now and then",
        ),
        pytest.param(
            {
                "before": "from torch.distributed._functional_collectives import all_reduce as reduce",
                "backward": "for one in model.parameters(): one.grad.copy_(reduce(one.grad, 'sum', dist.group.WORLD))",
            },
            id="functional collectives",
        ),
    ],
)
def test_ranks_that_exchange_gradients_do_not(tmp_path: Path, parts: dict[str, Any]) -> None:
    assert not trained(tmp_path, **parts)
