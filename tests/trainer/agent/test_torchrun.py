"""torchrun in the trainer image: how a node parses its command lines, and when torch's own runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from kittrain.agent import torchrun
from kittrain.agent.fault_injection import AGENT
from tests.trainer.nodes import free_port

SCRIPT = "import os, sys; print('rank', os.environ['RANK'], 'run', os.environ.get('KIT_RUN_ID'), sys.argv[1:])\n"


@pytest.mark.parametrize(
    ("words", "command", "ignored"),
    [
        ("train.py", "train.py", ""),
        ("train.py --lr 1 -m x", "train.py --lr 1 -m x", ""),
        ("-m package.train --lr 1", "-m package.train --lr 1", ""),
        ("--module package.train", "-m package.train", ""),
        ("--nnodes 2 --nproc_per_node=4 train.py a", "train.py a", "--nnodes 2 --nproc_per_node=4"),
        ("--standalone --nproc-per-node 2 -m train", "-m train", "--standalone --nproc-per-node 2"),
        ("--rdzv-backend c10d --rdzv_endpoint=a:1 -- train.py", "train.py", "--rdzv-backend c10d --rdzv_endpoint=a:1"),
        ("-t3 -r 3 train.py", "train.py", "-t3 -r 3"),
        ("", "", ""),
        ("--nnodes", "", "--nnodes"),
    ],
)
def test_a_command_line(words: str, command: str, ignored: str) -> None:
    assert torchrun.parse(words.split()) == (command.split(), ignored.split())


def test_flags_are_those_of_torchs_own() -> None:
    """Which of its options take no value."""
    known = [action for action in get_args_parser()._actions if action.nargs == 0]
    flags = {option.replace("_", "-") for action in known for option in action.option_strings}
    assert flags - {"-h", "--help"} <= torchrun.FLAGS | torchrun.MODULE | {torchrun.PROGRAM}


def test_a_program_that_is_not_a_script_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert torchrun.main(["--no_python", "echo", "x"], {"KIT_RENDEZVOUS_HOST": "host"}) == 2
    assert "start a Python script or module" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "is_node"),
    [({}, "no"), ({"KIT_RENDEZVOUS_HOST": "a"}, "yes"), ({"KIT_RENDEZVOUS_HOST": "a", "RANK": "0"}, "no")],
)
def test_a_rank_and_a_shell_get_torchs_own(environ: dict[str, str], is_node: str) -> None:
    assert torchrun.is_node(environ) is (is_node == "yes")


def run(folder: Path, *words: str, script: str = SCRIPT, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-P", "-m", "kittrain.agent.torchrun", *words]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KIT_", "PET_"))}
    return subprocess.run(command, cwd=folder, env=inherited | environ, capture_output=True, text=True, check=False)


def pod(*, ranks: int) -> dict[str, str]:
    """The variables of a job's only pod; its agent listens on a free port."""
    endpoint = {"KIT_RENDEZVOUS_HOST": "localhost", "PET_RDZV_ENDPOINT": f"localhost:{free_port()}"}
    return {**endpoint, "KIT_NODE_INDEX": "0", "PET_NNODES": "1", "PET_NPROC_PER_NODE": str(ranks)}


@pytest.mark.wide
@pytest.mark.slow
def test_in_a_pod_it_is_the_nodes_agent(tmp_path: Path) -> None:
    done = run(tmp_path, "--nnodes=3", "train.py", "a", **pod(ranks=2), PET_RDZV_ID="mine")
    assert done.returncode == 0, done.stderr
    assert "ignored: --nnodes=3" in done.stderr
    for rank in range(2):
        assert f"[rank {rank}]: rank {rank} run mine ['a']" in done.stdout


@pytest.mark.wide
@pytest.mark.slow
def test_the_agent_has_the_command_line_that_drills_look_for(tmp_path: Path) -> None:
    script = "import os, pathlib\nprint(pathlib.Path(f'/proc/{os.getppid()}/cmdline').read_bytes())\n"
    done = run(tmp_path, "train.py", script=script, **pod(ranks=1))
    assert repr(AGENT)[2:-1] in done.stdout, done.stdout + done.stderr


@pytest.mark.wide
@pytest.mark.slow
def test_beside_the_pods_agent_it_is_torchs_own(tmp_path: Path) -> None:
    """As ``kubectl exec`` starts it, which gives it the container's variables and none of a rank's."""
    variables = pod(ranks=1) | {"KIT_POD": f"pod-{tmp_path.name}-{os.getpid()}"}
    (tmp_path / "other.py").write_text("import os\nprint('other: group of', os.environ['WORLD_SIZE'])\n")
    words = [sys.executable, "-P", "-m", "kittrain.agent.torchrun", "--standalone", "--nproc-per-node", "1", "other.py"]
    environ = {"PATH": os.environ["PATH"], **variables}
    script = f"import subprocess\nsubprocess.run({words!r}, env={environ!r}, check=True)\n"
    done = run(tmp_path, "train.py", script=script, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[rank 0]: other: group of 1" in done.stdout


@pytest.mark.wide
@pytest.mark.slow
def test_outside_of_a_pod_it_is_torchs_own(tmp_path: Path) -> None:
    done = run(tmp_path, "--standalone", "--nproc-per-node", "1", "train.py", "a")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rank 0 run None ['a']\n"
