"""Warm ranks behave like cold ones, and the job survives the death of any process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.nodes import ColdNodes, Nodes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="ranks are warm on Linux only"),
]

StartJob = Callable[..., Nodes]
# KIT_WARM_WORKERS; what a cold rank finds is mostly Python's own doing.
WARM = ["1", pytest.param("0", marks=pytest.mark.long)]


@pytest.fixture
def job(tmp_path: Path) -> StartJob:
    def start(script: str, *, kind: type[Nodes] = Nodes, **env: str) -> Nodes:
        (tmp_path / "train.py").write_text(script)
        nodes = kind(tmp_path, str(tmp_path / "train.py"), nodes="1", **env)
        nodes.start(0)
        return nodes

    return start


def children(parent: int) -> set[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return {int(child) for child in listed.split()}


def printed(nodes: Nodes, rank: int = 0) -> list[str]:
    """The lines that a rank has printed."""
    lines = nodes.output(0).splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith(f"[rank {rank}]")]


@pytest.mark.parametrize("warm", WARM)
def test_a_rank_finds_the_state_of_a_new_interpreter(job: StartJob, warm: str) -> None:
    script = (
        "import sys\n"
        "print('torch' in sys.modules)\n"
        "import os, signal, threading, time, atexit\n"
        "print(__name__, sys.argv[1:], os.environ['RANK'], os.getsid(0) == os.getpid(), os.getcwd())\n"
        "print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.getsignal(signal.SIGINT).__name__)\n"
        # less the heartbeat's, which Python's mmap keeps, and that of stacks, which faulthandler does
        "opened = [os.path.realpath(f'/proc/self/fd/{one}') for one in os.listdir('/proc/self/fd')]\n"
        "print(sum('.heartbeat' not in one for one in opened), os.environ.get('TORCH_CPP_LOG_LEVEL'), sys.path[0])\n"
        "atexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
        "print('half a line', end='')\n"
    )
    with job(script, kind=ColdNodes, KIT_WARM_WORKERS=warm) as nodes:
        assert nodes.wait(0) == 0
        assert printed(nodes) == [
            str(warm == "1"),
            f"__main__ [] 0 True {Path.cwd()}",
            "True default_int_handler",
            f"4 None {nodes.folder}",  # three, and that of the listing itself
            "half a linethread",
            "at exit",
        ]


@pytest.mark.parametrize("warm", WARM)
@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("raise SystemExit('no')", "SystemExit: no"),
        ("import os; os.abort()", "killed by SIGABRT at train.py:1 in <module>: native code aborted"),
    ],
)
def test_the_cause_of_a_failure_is_reported(job: StartJob, warm: str, end: str, error: str) -> None:
    with job(end, KIT_WARM_WORKERS=warm, PET_MAX_RESTARTS="0") as nodes:
        assert nodes.wait(0) == 78
        assert nodes.end(0)["error"] == error


def test_ranks_have_different_random_seeds(job: StartJob) -> None:
    script = "import random, numpy\nprint('drew', random.random(), numpy.random.random())\n"
    with job(script, PET_NPROC_PER_NODE="2") as nodes:
        assert nodes.wait(0) == 0
        drawn = [line.split()[1:] for rank in (0, 1) for line in printed(nodes, rank)]
        assert len({number for numbers in drawn for number in numbers}) == 4


@pytest.mark.parametrize("warm", WARM)
def test_several_ranks_have_one_thread_each(job: StartJob, warm: str) -> None:
    script = "import torch\nprint('threads', torch.get_num_threads())\n"
    with job(script, kind=ColdNodes, KIT_WARM_WORKERS=warm, PET_NPROC_PER_NODE="2", OMP_NUM_THREADS="") as nodes:
        assert nodes.wait(0) == 0
        assert [printed(nodes, rank) for rank in (0, 1)] == [["threads 1"]] * 2


def test_without_the_zygote_ranks_start_cold(job: StartJob) -> None:
    script = (
        "import sys\nwarm = 'torch' in sys.modules\nimport os, time\n"
        "print('rank', os.getppid(), os.getpid(), 'warm' if warm else 'cold')\ntime.sleep(600)\n"
    )
    with job(script) as nodes:
        nodes.until(0, "warm")
        _, agent, rank, _ = printed(nodes)[0].split()
        hub_and_zygote = children(int(agent)) - {int(rank)}
        (zygote,) = (pid for pid in hub_and_zygote if b"kittrain.agent\0" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(zygote, signal.SIGKILL)
        os.kill(int(rank), signal.SIGKILL)
        nodes.until(0, "cold\n")
        assert "warning: the zygote is lost" in nodes.output(0)
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75


@pytest.mark.parametrize("warm", WARM)
def test_the_processes_of_a_rank_end_with_it(job: StartJob, warm: str) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "print('started', subprocess.Popen(['sleep', '600']).pid, os.getpid(), os.getppid())\ntime.sleep(600)\n"
    )
    with job(script, KIT_WARM_WORKERS=warm) as nodes:
        nodes.until(0, "started")
        _, orphan, rank, agent = printed(nodes)[0].split()
        os.kill(int(rank), signal.SIGKILL)
        nodes.until(0, "started", times=2)
        assert not Path(f"/proc/{orphan}").exists()
        assert int(orphan) not in children(int(agent))


def test_a_rank_that_ignores_sigterm_is_killed_when_its_peers_are_lost(job: StartJob) -> None:
    script = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', os.getpid())\ntime.sleep(600)\n"
    )
    with job(script, PET_NPROC_PER_NODE="2", KIT_POLICY_GRACE_PERIOD="600") as nodes:
        nodes.until(0, "deaf", times=2)
        os.kill(int(printed(nodes, 1)[0].split()[1]), signal.SIGKILL)
        nodes.until(0, "deaf", times=4)  # long before the grace period ends


def test_torchrun_s_options_do_not_reach_a_torchrun_within_a_rank(job: StartJob) -> None:
    script = "import os\nprint([name for name in os.environ if name.startswith('PET_')], os.environ['KIT_RUN_ID'])\n"
    with job(script) as nodes:
        assert nodes.wait(0) == 0
        assert printed(nodes) == ["[] test-run"]
