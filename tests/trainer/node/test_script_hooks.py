"""The hooks observe a script's use of torch, and change nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from kittrain.node.script_hooks import VARIABLE
from kittrain.system.heartbeat import HeartbeatState, Phase, prepare

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


def run(folder: Path, script: str, **env: str) -> HeartbeatState:
    """What the agent reads after a cold rank has run a script."""
    (folder / "train.py").write_text(dedent(script))
    file = prepare(folder / "heartbeat")
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "kittrain.node.worker", "train.py"]
    subprocess.run(command, cwd=folder, env={"PATH": "", "KIT_HEARTBEAT_FILE": str(file), **rank, **env}, check=True)
    return HeartbeatState.read(file)


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


def test_the_time_of_a_file_loaded_before_the_first_step_is_recorded(tmp_path: Path) -> None:
    script = """
    import os, torch
    from pathlib import Path
    for name, seconds in (("old", 5), ("new", 7), ("newest", 9)):
        torch.save({"a": torch.ones(2)}, name)
        os.utime(name, (seconds, seconds))
    with open("old", "rb") as opened:
        torch.load(opened)
    with open("new", "rb") as opened:
        buffer = __import__("io").BytesIO(opened.read())
    assert torch.load(buffer)["a"].tolist() == [1, 1]
    torch.load(Path("new"), weights_only=True)
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    optimizer.step()
    torch.load(f="newest")
    assert torch.load is torch.serialization.load
    """
    assert run(tmp_path, script).loaded == 7_000_000_000
