"""The hooks observe a script's use of torch, and change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.node.script_hooks import VARIABLE
from kittrain.system.heartbeat import Phase
from tests.trainer.hooked import run

pytestmark = pytest.mark.slow

TRAIN = """
import sys
assert "torch" not in sys.modules, "the hooks must not import it"
import torch
model = torch.nn.Linear(2, 1)
optimizers = [torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters(), lr=0.1)]
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
assert not [finder for finder in sys.meta_path if "kittrain" in type(finder).__module__ and "optim" in finder._name]
"""


def test_optimizer_steps_are_counted_in_a_rank_that_imports_torch_later(tmp_path: Path) -> None:
    seen = run(tmp_path, TRAIN)
    assert (seen.step, seen.beats, seen.phase, seen.group) == (3, 6, Phase.SCRIPT, 0)


def test_the_hooks_can_be_left_out(tmp_path: Path) -> None:
    seen = run(tmp_path, TRAIN, **{VARIABLE: "0"})
    assert (seen.step, seen.phase, any(seen.first)) == (0, Phase.STARTING, False)


def test_a_process_group_is_seen_however_it_was_formed_and_after_it_is_gone(tmp_path: Path) -> None:
    script = """
    from torch.distributed import destroy_process_group, init_process_group, new_group
    from torch.distributed.device_mesh import init_device_mesh
    {}
    new_group([0])
    destroy_process_group()
    """
    for call in ("init_process_group('gloo')", "init_device_mesh('cpu', (1,))"):
        assert run(tmp_path, script.format(call)).group == 1


def test_a_script_without_torch_does_not_import_it(tmp_path: Path) -> None:
    assert run(tmp_path, "import sys; assert 'torch' not in sys.modules").step == 0
