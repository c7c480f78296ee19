"""The zygote's imports are safe to fork: no threads, no device driver. Warm ranks behave like cold ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kittrain.agent.processes import zygote
from kittrain.agent.processes.zygote import PRELOADED
from kittrain.system import cuda
from kittrain.torch_private.early import IMPORTED_AT_FIRST_STEP
from tests.trainer.nodes import SCRIPTS, ColdNodes, Nodes

LOOK = """
import importlib, os, sys, torch
def refuse(*_, **__):
    raise AssertionError("a driver was asked")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda._lazy_init = refuse
if hasattr(torch._C, "_cuda_getDeviceCount"):
    torch._C._cuda_getDeviceCount = refuse
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="warm ranks need Linux")
def test_preloaded_modules_start_no_thread_and_use_no_device() -> None:
    command = [sys.executable, "-P", "-c", LOOK, *PRELOADED, IMPORTED_AT_FIRST_STEP]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # OpenBLAS starts threads at import, and again after a fork
    assert subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout == "1\n"


def test_ranks_are_not_forked_from_a_process_that_has_initialized_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "preload", dict)
    monkeypatch.setattr(cuda, "initialized", lambda: True)
    with closing(zygote.Zygote()) as warm, pytest.raises(zygote.ZygoteLost, match="initialized CUDA"):
        warm.wait_ready()


HOSTILE = {
    "PYTHONHASHSEED": "5",
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore",
    "OMP_NUM_THREADS": "2",
    "TZ": "Asia/Tokyo",
    "LC_ALL": "C.UTF-8",
    "LOGLEVEL": "DEBUG",
    "TORCH_LOGS": "+dynamo",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
}  # variables of the job that libraries read at import


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="warm ranks need Linux")
def test_a_warm_rank_has_the_state_of_a_new_interpreter_and_fresh_seeds(tmp_path: Path) -> None:
    (cold,) = facts(tmp_path / "cold", KIT_WARM_WORKERS="0", FACTS_ONCE="1")
    warm = facts(tmp_path / "warm", PET_NPROC_PER_NODE="2")
    assert len(warm) == 4  # two ranks, twice
    for found in warm:
        for topic in ("kernel", "interpreter", "torch"):
            assert found[topic] == cold[topic]
    for source in set(cold["random"]) - {"generators"}:
        assert len({json.dumps(found["random"][source]) for found in warm}) == 4, source
    states = [state for found in warm for state in found["random"]["generators"]]
    assert len(set(states)) == len(states) > 4


def facts(folder: Path, **more: str) -> list[dict[str, Any]]:
    """The state that each rank of an agent found (``scripts/facts.py``), also after a restart."""
    folder.mkdir()
    with ColdNodes(
        folder, str(SCRIPTS / "facts.py"), *PRELOADED, IMPORTED_AT_FIRST_STEP, nodes="1", **HOSTILE, **more
    ) as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
        assert "new interpreter" not in nodes.everything()
        return [json.loads(path.read_text()) for path in sorted(nodes.snapshots.glob("facts-*"))]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="warm ranks need Linux")
def test_a_rank_that_cannot_be_forked_starts_cold_with_a_warning(tmp_path: Path) -> None:
    """A module next to the script has the name of one that the zygote has imported."""
    (tmp_path / "sympy.py").write_text("WHOSE = 'the script has its own'\n")
    (tmp_path / "train.py").write_text(
        "import sys, os, sympy\nprint(sympy.WHOSE, sys.argv[1:], os.getsid(0) == os.getpid())\n"
    )
    with Nodes(tmp_path, str(tmp_path / "train.py"), "--lr", "1", nodes="1") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
        assert "the script has its own ['--lr', '1'] True" in nodes.output(0)
        assert (
            f"warning: this rank starts in a new interpreter, which takes longer: sympy.py in {tmp_path}"
            in nodes.output(0)
        )
