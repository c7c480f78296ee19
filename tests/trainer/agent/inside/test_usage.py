"""What ranks use, with the processes that they have started, and their GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kitjob import typed
from kitjob.usage import NodeUse
from kittrain.agent.inside.usage import Gpu, gpu_of, gpus, usage
from tests.trainer.ranks import StartRank

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

READY = "import os, time; os.write(int(os.environ['READY']), b'.')\n"
SLEEPS = f"held = b'x' * (64 << 20)\n{READY}time.sleep(600)\n"
LOADS = (
    f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'while True: pass'])\n{READY}time.sleep(600)\n"
)
GPU = Gpu(0, "GPU-a", 0.5, 1 << 30, 4 << 30)
SMI = """#!/bin/sh
echo "0, GPU-a, 93, 1024, 4096"
echo "1, GPU-b, [N/A], 2048, 4096"
echo "what is this"
"""


def test_a_rank_counts_with_what_it_has_started(start_rank: StartRank) -> None:
    ranks = {0: start_rank(0, SLEEPS), 1: start_rank(1, LOADS)}
    sleeps, loads = usage(ranks)
    assert (sleeps.rank, sleeps.pid, sleeps.processes) == (0, ranks[0], 1)
    assert 64 << 20 <= sleeps.memory < 1 << 30
    assert (loads.rank, loads.processes) == (1, 2)
    assert loads.cpu > 0, "its child's: the rank itself sleeps"
    assert sleeps.gpu is None or sleeps.gpu_total


def test_a_rank_that_has_ended_uses_nothing() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    (found,) = usage({0: done.pid}, moment=0.0)
    assert (found.cpu, found.memory, found.processes) == (0.0, 0, 0)


def test_gpus_are_those_that_nvidia_smi_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert gpus() == [Gpu(0, "GPU-a", 0.93, 1 << 30, 4 << 30), Gpu(1, "GPU-b", None, 2 << 30, 4 << 30)]
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert not gpus()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"LOCAL_RANK": "1"}, 1),
        ({}, 0),
        ({"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "1"}, 1),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "GPU-b, GPU-a"}, 0),
        ({"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": ""}, None),
        ({"LOCAL_RANK": "7"}, None),
    ],
)
def test_a_rank_has_the_gpu_of_its_local_rank(env: dict[str, str], expected: int | None) -> None:
    rest = {name: value for name, value in os.environ.items() if name not in {"LOCAL_RANK", "CUDA_VISIBLE_DEVICES"}}
    with subprocess.Popen(["/bin/sleep", "600"], env=rest | env) as process:
        while not Path(f"/proc/{process.pid}/environ").read_bytes():
            time.sleep(0.01)  # it has not become the other program
        found = gpu_of(process.pid, [GPU, GPU._replace(number=1, uuid="GPU-b")])
        process.kill()
    assert (found.number if found else None) == expected


def test_the_module_prints_what_kitctl_reads() -> None:
    command = [sys.executable, "-P", "-m", "kittrain.agent.inside.usage", "--agent", str(os.getpid())]
    done = subprocess.run(command, check=True, capture_output=True)
    assert typed.load(list[NodeUse], done.stdout) == [NodeUse()]
    assert json.loads(done.stdout)[0]["ranks"] == []
