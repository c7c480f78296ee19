"""Scripts that use a file or a port for their process group start, and restart."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.trainer.nodes import Nodes

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys, time
from pathlib import Path
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=world)
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {rank} sum {total.item():.0f}", flush=True)
while not Path(sys.argv[2]).exists():
    dist.all_reduce(total)
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("warm", ["1", pytest.param("0", marks=pytest.mark.long)])
def test_a_stale_file_does_not_block_later_rounds(tmp_path: Path, warm: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "meet").write_bytes(b"left by a round that was killed")
    command = (str(tmp_path / "train.py"), f"file://{tmp_path / 'meet'}", str(tmp_path / "go"))
    with Nodes(tmp_path, *command, KIT_WARM_WORKERS=warm) as nodes:
        nodes.start(0, 1)
        nodes.until(1, "rank 1 sum 2")
        os.kill(nodes.ranks(1)[0], signal.SIGKILL)
        nodes.until(1, "rank 1 sum 2", times=2)
        nodes.kill(1)
        nodes.start(1)
        nodes.until(1, "rank 1 sum 2", times=3)
        output = nodes.output(0)
    assert "note: init_process_group meets at this job's own address instead of file://" in output


def test_a_busy_port_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "go").touch()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"tcp://127.0.0.1:{busy.getsockname()[1]}"
        with Nodes(tmp_path, str(tmp_path / "train.py"), address, str(tmp_path / "go")) as nodes:
            nodes.start(0, 1)
            assert [nodes.wait(0), nodes.wait(1)] == [0, 0], nodes.everything()


@pytest.mark.parametrize(
    ("warm", "place"), [("1", "dist.init"), pytest.param("0", "import torch,", marks=pytest.mark.wide)]
)
def test_a_port_that_the_script_sets_does_not_matter(tmp_path: Path, warm: str, place: str) -> None:
    lines = f"os.environ['MASTER_ADDR'] = 'localhost'\nos.environ['MASTER_PORT'] = '12355'\n{place}"
    (tmp_path / "train.py").write_text(SCRIPT.replace(place, lines, 1))
    (tmp_path / "go").touch()
    command = (str(tmp_path / "train.py"), "env://", str(tmp_path / "go"))
    with Nodes(tmp_path, *command, KIT_WARM_WORKERS=warm) as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0], nodes.everything()
        assert "not at the script's MASTER_ADDR=localhost MASTER_PORT=12355" in nodes.output(0)


def test_mpi_fails_with_a_clear_reason(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch.distributed as dist\ndist.init_process_group('mpi')\n")
    with Nodes(tmp_path, str(tmp_path / "train.py"), nodes="1", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        assert "kitctl starts the ranks, not mpirun" in nodes.end(0)["error"]
