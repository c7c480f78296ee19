"""DDP's error for parameters without a gradient, of real groups of two processes, and what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.agent.processes.unused_parameters import LENGTH, MOST, _told, unused
from tests.trainer.ranks import pair

RANK = """\
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from kittrain.agent.processes.unused_parameters import unused

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))  # its name has no dot
        self.frozen = nn.Linear(2, 2).requires_grad_("frozen" not in case)
        self.image = nn.Linear(2, 2)
        self.text = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        self.tied = self.image  # counted once
        self.own = nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)

    def forward(self, batch):
        with torch.no_grad():
            text = self.text(batch)
        return self.own(self.head(self.frozen(self.image(batch)) + text)) * self.scale

folder, rank, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", store=dist.FileStore(folder + "/store", 2), rank=rank, world_size=2)
net = Net()
if case == "frozen, ignored":
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["own.weight", "own.bias", "text.0.bias"])
ddp = DistributedDataParallel(net)
if case in ("since", "frozen, more since"):
    net.image.requires_grad_(False)
if case == "unnamed":
    net.named_parameters = lambda: 1 / 0
try:
    for _ in range(2):
        ddp(torch.ones(1, 2)).sum().backward()
except RuntimeError as error:
    print(unused(error), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("frozen", "text.0.weight, text.0.bias, text.2.weight and 1 more had no gradient"),
        ("frozen, ignored", "text.0.weight, text.2.weight, text.2.bias had no gradient"),
        ("since", "image.weight, image.bias, text.0.weight and 3 more had no gradient"),
        pytest.param("frozen, more since", "", marks=pytest.mark.long),  # which of them DDP has counted is not known
        pytest.param("unnamed", "", marks=pytest.mark.long),
    ],
)
def test_parameters_without_a_gradient_are_named(tmp_path: Path, case: str, told: str) -> None:
    assert pair(tmp_path, RANK, case) == [f"{told}\n"] * 2


@pytest.mark.parametrize(
    "text", ["another error", "Parameter indices which did not receive grad for rank 1: 5 6", "did not receive grad: x"]
)
def test_nothing_is_told_of_an_error_that_ddp_has_not_raised(text: str) -> None:
    with pytest.raises(RuntimeError) as info:
        raise RuntimeError(text)
    assert unused(info.value) == ""


def test_an_error_without_a_text_is_left_alone() -> None:
    class OwnError(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert unused(OwnError()) == ""


def test_what_is_told_stays_short() -> None:
    assert _told(["a", "b c", "d"], [0, 1, 2]) == "a, d and 1 more had no gradient"
    assert _told(["a" * LENGTH] * 9, [*range(9)]) == f"{'a' * LENGTH} and 8 more had no gradient"
    assert _told(["a" * LENGTH * 2], [0]) == ""
    assert _told([], [0]) == ""
    assert _told([*"abcd"], [*range(MOST)]) == "a, b, c had no gradient"
