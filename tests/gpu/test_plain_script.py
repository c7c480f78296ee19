"""A plain PyTorch script on a GPU: float16 with a scaler, torch.compile, and a GPU that hangs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.trainer.nodes import ColdNodes

PLAIN = Path(__file__).parent / "scripts" / "plain.py"


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[object]:
    """``plain(name, *arguments, **env)``: run the script on one node until it ends."""
    with ExitStack() as stack:

        def run(name: str, *arguments: str, **env: str) -> ColdNodes:
            (tmp_path / name).mkdir()
            command = (str(PLAIN), str(tmp_path / name), *arguments)
            node = ColdNodes(tmp_path / name, *command, nodes="1", KIT_GPUS_PER_NODE="1", **env)
            stack.enter_context(node).start(0)
            assert node.wait(0) == 0, node.everything()
            return node

        yield run


def loss(node: ColdNodes) -> str:
    """The loss that the script printed at its end."""
    losses: list[str] = re.findall(r"loss ([\d.]+)", node.output(0))
    return losses[-1]


@pytest.mark.parametrize("more", [[], ["--compile"]], ids=["eager", "compiled"])
def test_a_killed_script_continues_from_its_checkpoint_to_the_same_loss(plain, more):
    quiet, killed = plain("quiet", *more), plain("killed", *more, "--killed", "50")
    assert "resumed after step 40" in killed.output(0)
    assert loss(killed) == loss(quiet)
    assert quiet.report()["progress"]["step"] == 200
    assert killed.report()["progress"]["step"] == 160, "those of the last process"


def test_a_gpu_that_hangs_is_detected_and_the_rank_is_restarted(plain):
    stuck = plain("stuck", "--stuck", "50", KIT_POLICY_HANG_TIMEOUT="8", PET_MAX_RESTARTS="0")
    assert "hang: " in stuck.output(0)
    assert "after step 50" in stuck.output(0)
    assert "resumed after step 40" in stuck.output(0)
