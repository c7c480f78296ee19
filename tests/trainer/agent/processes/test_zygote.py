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


PLAIN = """
import os, sys, time
from pathlib import Path
from kittrain.agent.processes import zygote
from kittrain.system.parent_death import adopt_orphans

script = Path(sys.argv[1], "train.py")
script.write_text("import sys; print(sum(name.startswith(sys.argv[1]) for name in sys.modules))")
zygote.PRELOAD_AFTER = 0.5
adopt_orphans()
warm = zygote.Zygote(library=zygote.names_library([str(script)]))
warm.wait_ready()

def modules(name):
    output = script.with_name(name)
    output.write_text("")
    command = [str(script), "kittrain.rank."]
    pid = warm.start(zygote.ForkRequest(command=command, env=dict(os.environ), output=str(output)))
    os.waitpid(pid, 0)
    return int(output.read_text())

print(modules("first"))
ending = time.monotonic() + 60
while not (late := modules("late")) and time.monotonic() < ending:
    time.sleep(1)
print(late)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="warm ranks need Linux")
def test_a_script_that_does_not_name_the_library_does_not_wait_for_its_import(tmp_path: Path) -> None:
    """A rank of later has it, should another file of the script's import it."""
    found = subprocess.run(
        [sys.executable, "-P", "-c", PLAIN, str(tmp_path)], check=True, capture_output=True, text=True
    )
    first, late = map(int, found.stdout.split())
    assert first == 0, found.stderr
    assert late > 50, found.stderr


AHEAD = """
import os, signal, sys, time
from pathlib import Path
from kittrain.agent.processes import zygote
from kittrain.system.child_processes import children
from kittrain.system.parent_death import adopt_orphans

folder = Path(sys.argv[1])
script = folder / "train.py"
script.write_text("import os; print(os.environ['RANK'], os.listdir('/proc/self/fd'))")
zygote.FORK_AHEAD_AFTER = 0.1
adopt_orphans()
warm = zygote.Zygote(library=True, ahead=2)
warm.wait_ready()

def waiting(count):
    while len(found := [pid for pid in children() if name(pid) == zygote.WAITING]) != count:
        time.sleep(0.05)
    return found

def name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip()
    except OSError:
        return ""

def rank(number):
    output = folder / str(number)
    output.write_text("")
    env = dict(os.environ, RANK=str(number))
    pid = warm.start(zygote.ForkRequest(command=[str(script)], env=env, output=str(output)))
    os.waitpid(pid, 0)
    print(output.read_text(), end="")
    return pid

first = waiting(2)
assert {rank(0), rank(1)} == set(first)
second = waiting(2)
os.kill(second[-1], signal.SIGKILL)  # as the kernel does when memory runs out
os.waitpid(second[-1], 0)
assert {rank(2), rank(3)} & set(second) == {second[0]}
left = waiting(2)
warm.close()
for pid in left:
    os.waitpid(pid, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="warm ranks need Linux")
def test_ranks_that_were_forked_ahead_are_used_first_and_end_with_the_zygote(tmp_path: Path) -> None:
    """One that was killed meanwhile is not missed, and none has the others' connections."""
    found = subprocess.run(
        [sys.executable, "-P", "-c", AHEAD, str(tmp_path)], check=False, capture_output=True, text=True, timeout=120
    )
    assert not found.returncode, found.stderr
    lines = [line.split(" ", 1) for line in found.stdout.splitlines()]
    assert [number for number, _ in lines] == ["0", "1", "2", "3"]
    assert len({opened for _, opened in lines}) == 1, found.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [("from kittrain import Run", True), ("import torch", False), ("# \udcff latin \u00e9", False)],
)
def test_what_a_script_names_decides(tmp_path: Path, text: str, *, expected: bool) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert zygote.names_library([str(script), "--lr", "kittrain"]) is expected
    assert zygote.names_library(["-m", "package.train"])
    assert not zygote.names_library([str(tmp_path / "missing.py")])


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
