"""A folder that is sent with a job: each node has its own copy of the submitted state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

SCRIPT = """
import os, pathlib, sys, time
import model
starts = pathlib.Path("starts")
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
rank = os.environ["RANK"]
print(f"rank {rank} start {len(starts.read_text())} version {model.VERSION} in {pathlib.Path.cwd()}", flush=True)
deadline = time.monotonic() + 120
while not pathlib.Path(sys.argv[1]).exists() and time.monotonic() < deadline:
    time.sleep(0.05)
print(f"rank {rank} read {pathlib.Path('data/weights.bin').read_bytes()!r}", flush=True)
"""


def project(folder: Path) -> None:
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "model.py").write_text("VERSION = 1\n")
    (folder / "data" / "weights.bin").write_bytes(b"\xff\x00")


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_restarted_node_gets_the_submitted_files(kit: Kit) -> None:
    folder, signal_file = kit.folder / "project", kit.folder / "go"
    project(folder)
    job = ("--name", "sent", "--nodes", "2", "--workdir", "project")
    output = kit.run("submit", *job, "--", "train.py", str(signal_file))
    assert f"3 files (524 B) of {folder} sent to {kit.job('sent').code_store}" in output
    assert "each node sees only its own: what rank 0 saves is not there for others" in output
    kit.until("sent", lambda _: kit.read("logs", "sent").count("version 1") == 2)
    (folder / "model.py").write_text("VERSION = 2\n")
    kit.kill("sent", 1)
    kit.until("sent", lambda _: "rank 1 start 2" in kit.read("logs", "sent"))
    signal_file.touch()
    kit.run("wait", "sent")
    logs = kit.run("logs", "sent")
    assert "version 2" not in logs
    assert logs.count("read b'\\xff\\x00'") == 2
    for index in range(2):
        assert f"in {kit.job('sent').node(index).workdir}" in logs, "each node has its own folder"
    assert not (folder / "starts").exists(), "nothing is written to the folder that was sent"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_jobs_share_equal_files_and_deleting_one_removes_its_own(kit: Kit) -> None:
    folder, signal_file = kit.folder / "project", kit.folder / "go"
    project(folder)
    signal_file.touch()
    pool = kit.job("one").path.parents[2] / "blobs"
    for name in ("one", "two"):
        (folder / "model.py").write_text(f"VERSION = {name!r}\n")
        job = ("--name", name, "--workdir", str(folder))
        output = kit.run("submit", *job, "--wait", "--", "train.py", str(signal_file))
        assert f"{name}: outputs in {kit.job(name).path}/nodes/<i>/workdir" in output
    assert len([*pool.iterdir()]) == 4
    output = kit.run("delete", "one")
    (starts,) = (pool.parent / "outputs/default/one").glob("*/node-0/starts")
    assert starts.read_text() == "x", "what a rank wrote outlives its job"
    assert f"its outputs stay (1 file, 1 B): {starts.parents[1]}" in output
    shutil.rmtree(pool.parent / "outputs")
    assert len([*pool.iterdir()]) == 3
    assert "version two" in kit.run("logs", "two")
    kit.run("delete", "two", "--outputs", "-y")
    assert not (pool.parent / "outputs").exists()
    assert not [*pool.iterdir()]


RESUMING = """
import os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, path = dist.get_rank(), Path(sys.argv[1])
path.parent.mkdir(exist_ok=True)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer, epoch = torch.optim.SGD(model.parameters(), lr=0.1), 0
if path.exists():
    state = torch.load(path)
    model.load_state_dict(state["model"])
    epoch = state["epoch"]
print(f"rank {rank} begins at {'the start' if not epoch else 'a later epoch'}", flush=True)
stop = torch.tensor(0)
while stop < 2:
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 1)).mean().backward()
        optimizer.step()
        time.sleep(0.02)
    epoch += 1
    if rank == 0:
        torch.save({"epoch": epoch, "model": model.state_dict()}, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)
    stop = torch.tensor(int(Path(sys.argv[2]).exists()))
    dist.all_reduce(stop)
dist.destroy_process_group()
"""


def interrupted(kit: Kit, name: str, *words: str) -> str:
    """The logs of a job of two nodes that loses node 0 once its rank has saved."""
    folder, go = kit.folder / f"{name}-project", kit.folder / f"{name}-go"
    folder.mkdir()
    (folder / "train.py").write_text(RESUMING)
    kit.run(
        "submit",
        "--name",
        name,
        "--nodes",
        "2",
        "--workdir",
        str(folder),
        *words,
        "--",
        "train.py",
        "ck/best.pt",
        str(go),
    )
    kit.until(name, lambda state: (state["progress"]["step"] or 0) > 20)
    kit.kill(name, 0)
    kit.until(name, lambda _: kit.read("logs", name).count("begins at") == 4)
    return str(go)


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_with_shared_outputs_all_ranks_resume_alike_and_they_outlive_the_job(kit: Kit) -> None:
    go = interrupted(kit, "shared", "--outputs", "ck")
    (shared,) = kit.snapshots("shared").glob("outputs/*")
    assert str(shared) in kit.run("status", "shared")
    Path(go).touch()
    kit.run("wait", "shared")
    logs = kit.run("logs", "shared")
    assert logs.count("begins at the start") == 2
    assert logs.count("begins at a later epoch") == 2
    assert "--outputs" not in logs, "there is nothing to warn about"
    kit.run("delete", "shared")
    assert [path.name for path in shared.iterdir()] == ["best.pt"]
    shutil.rmtree(kit.snapshots("shared"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_checkpoint_in_a_nodes_own_folder_is_a_warning_and_so_are_ranks_that_resume_differently(kit: Kit) -> None:
    go = interrupted(kit, "private")
    saved = "rank 0 has saved ck/best.tmp to its node's own folder: ranks of other nodes do not find it there"
    differs = "node 0 resumed from ck/best.pt, node 1 from nothing"
    state = kit.until("private", lambda state: differs in state["reason"])
    assert "--outputs DIR" in state["reason"]
    Path(go).touch()
    kit.run("wait", "private")
    logs = kit.run("logs", "private")
    assert f"warning: {saved}; use --outputs ck" in logs
    assert logs.count(f"warning: {differs}") == 1
    assert logs.count("own folder") <= 2, "once for each agent: node 0 has had two"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_checkpoint_that_each_node_saves_for_itself_is_no_warning(kit: Kit) -> None:
    folder = kit.folder / "each-project"
    folder.mkdir()
    (folder / "train.py").write_text(RESUMING.replace("if rank == 0:", "if True:"))
    go = kit.folder / "each-go"
    go.touch()
    job = ("--name", "each", "--nodes", "2", "--workdir", str(folder))
    kit.run("submit", *job, "--wait", "--", "train.py", "ck/best.pt", str(go))
    assert "own folder" not in kit.run("logs", "each")
    assert kit.status("each")["reason"] == ""
    kit.run("delete", "each", "-y")
