"""Groups that a script forms at its own address work as outside of a job, and those at the job's address do, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.agent.hooks.launching.own_groups import MASTER, SERVED, Job, is_local
from tests.trainer.nodes import Nodes, free_port

GIVEN = {"MASTER_ADDR": "node-0", "MASTER_PORT": "29400", SERVED: "True", "WORLD_SIZE": "1", "RANK": "0"}

# Three processes of each rank: together at the job's address, and apart at the script's own, the same for both ranks.
GROUPS = """
import multiprocessing, os, pathlib, subprocess, sys, time
import torch, torch.distributed as dist

def total(size, **how):
    dist.init_process_group("gloo", **how)
    value = torch.tensor(1.0 + how["rank"])
    dist.all_reduce(value)
    dist.destroy_process_group()
    assert value == size * (size + 1) / 2, value

def work(rank):
    job, ports = int(os.environ["RANK"]), sys.argv[1:3]
    total(6, rank=3 * job + rank, world_size=6)
    total(3, rank=rank, world_size=3, init_method=f"tcp://localhost:{ports[0]}")
    total(3, rank=rank, world_size=3, init_method=f"file://{sys.argv[3]}-{job}")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", ports[1]
    total(3, rank=rank, world_size=3)
    done = pathlib.Path(sys.argv[3])
    done.with_suffix(f".{job}.{rank}").touch()
    while len(list(done.parent.glob(f"{done.name}.*.*"))) < 6:  # a port is the other rank's for as long as that lives
        time.sleep(0.01)

def seen(**env):
    command = [sys.executable, "-c", "import os; print(os.environ.get('TORCHELASTIC_USE_AGENT_STORE'))"]
    return subprocess.run(command, capture_output=True, text=True, check=True, **env).stdout.strip()

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed"])
    processes = [context.Process(target=work, args=(rank,)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert seen() == "True"
    assert seen(env={**os.environ, "MASTER_PORT": "1"}) == "None"
    before, os.environ["MASTER_PORT"] = os.environ["MASTER_PORT"], "1"
    assert seen() == "None"
    os.environ["MASTER_PORT"] = before
    assert seen() == "True"
    print("all sums are right")
"""


@pytest.mark.wide
@pytest.mark.slow
def test_processes_of_a_rank_form_groups_at_any_address(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GROUPS)
    command = (str(tmp_path / "train.py"), str(free_port()), str(free_port()), str(tmp_path / "meet"))
    with Nodes(tmp_path, *command, nodes="1", PET_NPROC_PER_NODE="2", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
        output = nodes.output(0)
        assert output.count("all sums are right") == 2
        assert output.count(" is used by another process here; this group meets at ") == 2
        assert "each of the 2 ranks starts 3 processes, which form a group of their own" in nodes.report()["warning"]
        assert output.count("]: warning: each of the 2 ranks starts 3 processes") > output.count(
            "[agent 0]: warning: each"
        )


@pytest.mark.parametrize("environ", [GIVEN, GIVEN | {"OTHER": "1"}])
def test_a_program_finds_the_agents_store_at_its_own_address(environ: dict[str, str]) -> None:
    assert Job(GIVEN, 1).consistent(environ) == environ


@pytest.mark.parametrize(
    "environ",
    [
        GIVEN | {"MASTER_PORT": "29500"},
        GIVEN | {"MASTER_ADDR": "localhost"},
        {name: GIVEN[name] for name in MASTER},
        {SERVED: "True"},
    ],
)
def test_a_program_looks_for_no_store_at_another_address(environ: dict[str, str]) -> None:
    assert Job(GIVEN, 1).consistent(environ) == {name: text for name, text in environ.items() if name != SERVED}


def test_an_address_is_local_if_it_means_another_machine_on_each() -> None:
    assert list(map(is_local, ("localhost", "127.0.0.2", "::1"))) == [True] * 3
    assert list(map(is_local, ("10.0.0.1", "node-0"))) == [False] * 2
