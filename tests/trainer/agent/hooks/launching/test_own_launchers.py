"""Launchers that a script starts in each rank are told: each would form a world of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.agent.hooks.launching.own_launchers import processes
from kittrain.outcome.rank_output import NO_PROCESSES
from tests.trainer.nodes import Nodes

SCRIPT = """
import subprocess, sys
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def work():
    return 1

if __name__ == "__main__":
    if sys.argv[1] == "program":
        subprocess.run([sys.argv[2], "--nproc-per-node", "3", "train.py"], check=True)
    else:
        rendezvous = {"run_id": "own", "rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
        config = LaunchConfig(1, 1, 3, start_method="fork", **rendezvous)  # processes that need not import torch again
        assert elastic_launch(config, work)() == {0: 1, 1: 1, 2: 1}
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["program", "function"])
def test_a_launcher_in_each_rank_is_a_warning_in_log_and_status(tmp_path: Path, how: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    launcher = tmp_path / "torchrun"
    launcher.write_text("#!/bin/sh\nexec sleep 1\n")
    launcher.chmod(0o755)
    command = (str(tmp_path / "train.py"), how, str(launcher))
    with Nodes(tmp_path, *command, nodes="1", PET_NPROC_PER_NODE="2", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
        said = "each of the 2 ranks starts 3 processes, which form a group of their own"
        assert said in nodes.report()["warning"]
        assert nodes.output(0).count(f"]: warning: {said}") >= 2


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (["torchrun", "--nproc_per_node=4", "train.py"], 4),
        (["/opt/bin/torchrun", "train.py"], 1),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"], 2),
        (["accelerate", "launch", "--num_processes", "8", "train.py"], 8),
        (["accelerate-launch", "train.py", "--cpu", "1"], 1),
        (["python", "-m", "accelerate.commands.launch", "--num-processes=2", "train.py"], 2),
        (["accelerate", "launch", "--cpu", "--num_processes", "2", "train.py"], 2),
        (["accelerate", "launch", "--mixed_precision", "no", "--cpu", "train.py"], 0),
        (["accelerate", "launch", "--config_file", "nowhere.yaml", "--cpu", "train.py"], 0),
        (["accelerate", "launch", "--cpu", "--num_processes", "1", "train.py"], 0),
        ("exec torchrun --standalone --nnodes=1 --nproc-per-node 2 train.py", 2),
        (["torchrun", "--nnodes", "2", "--nproc-per-node", "4", "train.py"], 0),
        (["torchrun", "--nnodes=1:4", "train.py"], 0),
        (["accelerate", "config"], 0),
        (["python", "torchrun.py"], 0),
        (["which", "torchrun"], 0),
        (["ls", b"torchrunner", 3], 0),
        (None, 0),
    ],
)
def test_what_starts_processes_of_its_own(command: object, number: int) -> None:
    assert processes(command, {"HF_HOME": "/nowhere"}) == number


YAML = "compute_environment: LOCAL_MACHINE\nnum_machines: {machines}\nnum_processes: {processes}\nuse_cpu: true\n"
JSON = '{{\n  "num_machines": {machines},\n  "num_processes": {processes},\n  "use_cpu": true\n}}\n'


@pytest.mark.parametrize(("name", "text"), [("default_config.yaml", YAML), ("default_config.json", JSON)])
def test_what_accelerate_config_wrote_counts(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "accelerate").mkdir()
    file, home = tmp_path / "accelerate" / name, {"HF_HOME": str(tmp_path)}
    plain, named = "accelerate launch train.py", f"accelerate launch --config_file {file} --cpu train.py"
    file.write_text(text.format(machines=1, processes=2))
    assert [processes(one, home) for one in (plain, named, "torchrun train.py")] == [2, 2, 1]
    assert processes("accelerate launch --num_processes 1 --cpu train.py", home) == 0
    assert processes("accelerate launch --cpu train.py", home) == 0, "Accelerate ignores its default file then"
    file.write_text(text.format(machines=1, processes=1))
    assert [processes(one, home) for one in (plain, named)] == [1, 0]
    file.write_text(text.format(machines=2, processes=4))
    assert [processes(one, home) for one in (plain, named)] == [0, 0], "one world of both machines"
    file.write_bytes(b"num_processes: \xff")
    assert processes(plain, home) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("number", "told"), [(0, True), (1, False)])
def test_processes_of_which_there_are_none_are_told_once_the_ranks_have_done_nothing(
    tmp_path: Path, *, number: int, told: bool
) -> None:
    (tmp_path / "train.py").write_text(
        "import torch.multiprocessing as mp\n"
        f"if __name__ == '__main__':\n    mp.start_processes(print, args=(), nprocs={number}, start_method='fork')\n"
    )
    with Nodes(tmp_path, str(tmp_path / "train.py"), nodes="1", PET_NPROC_PER_NODE="2") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
        assert (NO_PROCESSES in nodes.output(0)) is told
        assert (nodes.end(0)["note"] == f"rank 0: {NO_PROCESSES}") is told
