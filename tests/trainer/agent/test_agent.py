"""Whole nodes on the loopback interface: start, report, failures, and invalid starts."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from kittrain.helper import log_copies
from tests.trainer.listeners import addresses, descendants
from tests.trainer.nodes import SCRIPTS, ColdNodes, Nodes
from tests.trainer.storage import UNREADABLE

pytestmark = pytest.mark.slow


@pytest.mark.wide
def test_ranks_of_unequal_nodes_finish_together(tmp_path: Path) -> None:
    with ColdNodes(tmp_path, str(SCRIPTS / "allreduce.py"), KIT_LOG_DIR=str(tmp_path / "logs")) as nodes:
        nodes.start(0)
        nodes.start(1, PET_NPROC_PER_NODE="2")
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        report = nodes.report()
        lines = nodes.everything().splitlines()
    assert {f"[rank {rank}]: sum of ranks 3.0 of 3" for rank in range(3)} <= set(lines)
    assert all(line.startswith(("[rank ", "[agent ")) for line in lines)
    assert report["run"] == "test-run"
    assert report["world_size"] == 3
    assignments = report["nodes"]
    assert assignments["1"]["ranks"][1] - assignments["1"]["ranks"][0] == 1
    assert sorted(assignment["group_rank"] for assignment in assignments.values()) == [0, 1]
    rank = assignments["0"]["ranks"][0]
    (run,) = [run for run in log_copies.agent_runs(tmp_path / "logs") if run.node == 0]
    copied = [line.split(b" ", 2)[2] for line in log_copies.lines(tmp_path / "logs", [run])]
    assert [line for line in copied if line.startswith(b"[agent 0]: node 0 of 2")]
    last = [f"[rank {rank}]: sum of ranks 3.0 of 3\n", "[agent 0]: done: all ranks succeeded\n"]
    assert copied[-2:] == [line.encode() for line in last]
    assert assignments["0"]["agent_runs"] == 1
    assert nodes.end(0)["outcome"] == "done"


def test_a_local_job_listens_on_loopback_only(tmp_path: Path) -> None:
    with Nodes(tmp_path, str(SCRIPTS / "steps.py")) as nodes:
        nodes.start(0, 1)
        nodes.until(0, "world of 2")
        nodes.until_true((tmp_path / "snapshots" / "step-00000002-g0001").exists, "second step")
        found = addresses(pid for index in (0, 1) for pid in descendants(nodes.pid(index)))
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
    assert found
    assert {address for address in found if not address.is_loopback} == set()


def test_a_permanent_failure_is_fatal_with_the_first_ranks_traceback(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "import os, time\n"
        "def explode():\n"
        "    raise ValueError('nothing to learn from')\n"
        "if os.environ['RANK'] == '1':\n"
        "    print('last words')\n"
        "    explode()\n"
        "time.sleep(600)\n"
    )
    with Nodes(tmp_path, str(script), nodes="1", PET_MAX_RESTARTS="1", PET_NPROC_PER_NODE="2") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        output = nodes.output(0)
        end = nodes.end(0)
    assert "rank 1 failed (ValueError: nothing to learn from), restart 1 of 1" in output
    assert output.count("[rank 1]: last words") == 2
    assert (end["outcome"], end["rank"], end["node"]) == ("fatal", 1, 0)
    assert end["error"] == "ValueError: nothing to learn from"
    assert "in explode" in end["traceback"]
    assert "runpy" not in end["traceback"]
    assert "worker.py" not in output


@pytest.mark.parametrize("failing", [0, 1])
def test_all_nodes_end_with_the_reason_of_the_one_that_fails_permanently(tmp_path: Path, failing: int) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "import os, time\n"
        f"if os.environ['KIT_NODE_INDEX'] == '{failing}':\n"
        "    time.sleep(1)\n"
        "    raise ValueError('nothing to learn from')\n"
        "time.sleep(600)\n"
    )
    other = 1 - failing
    with Nodes(tmp_path, str(script), PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1)
        assert nodes.wait(failing) == 78
        assert nodes.wait(other) == 78
        ends = {index: nodes.end(index) for index in (0, 1)}
    assert ends[other] == ends[failing]
    assert ends[other]["node"] == failing
    assert ends[other]["error"] == "ValueError: nothing to learn from"


def test_a_node_that_cannot_start_ranks_ends_the_others(tmp_path: Path) -> None:
    with Nodes(tmp_path, str(SCRIPTS / "allreduce.py")) as nodes:
        nodes.start(0, KIT_BACKEND="gloo")
        nodes.start(1, KIT_GPUS_PER_NODE="2", CUDA_VISIBLE_DEVICES="")
        assert [nodes.wait(0), nodes.wait(1)] == [78, 78]
        assert nodes.end(0)["reason"].startswith("2 GPUs requested")
        assert nodes.end(0)["node"] == 1


def test_a_missing_script_is_fatal_before_anything_starts(tmp_path: Path) -> None:
    with Nodes(tmp_path, "trian.py") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        assert "the script trian.py does not exist" in nodes.end(0)["reason"]


def test_a_finished_run_with_an_ambiguous_id_is_not_done(tmp_path: Path) -> None:
    with Nodes(tmp_path, str(SCRIPTS / "allreduce.py"), KIT_OWNER="apis/kubeflow.org/v1/pytorchjobs/job") as nodes:
        (nodes.snapshots / ".finished-test-run").touch()
        nodes.start(0)
        assert nodes.wait(0) == 78
        reason = nodes.end(0)["reason"]
    assert reason.startswith("run test-run has already finished; if this is a new run, submit it with kitctl")
    assert str(nodes.snapshots / ".finished-test-run") in reason


def test_a_finished_run_is_done_at_once(tmp_path: Path) -> None:
    with Nodes(tmp_path, str(SCRIPTS / "steps.py")) as nodes:
        (nodes.snapshots / ".finished-test-run").touch()
        nodes.start(1)  # without waiting for node 0
        assert nodes.wait(1) == 0


def test_a_busy_port_is_retryable_and_named(tmp_path: Path) -> None:
    with Nodes(tmp_path, str(SCRIPTS / "allreduce.py")) as nodes, socket.socket() as other:
        other.bind(("127.0.0.1", nodes.port))
        other.listen()
        nodes.start(0)
        assert nodes.wait(0) == 76
        assert f"port {nodes.port} " in nodes.end(0)["reason"]


def test_missing_gpus_are_fatal_except_with_gloo(tmp_path: Path) -> None:
    script = tmp_path / "idle.py"
    script.touch()
    with Nodes(tmp_path, str(script), nodes="1", KIT_GPUS_PER_NODE="2", CUDA_VISIBLE_DEVICES="") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        assert "2 GPUs requested, but 0 visible" in nodes.end(0)["reason"]
        nodes.start(0, KIT_BACKEND="gloo")
        assert nodes.wait(0) == 0


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("raise ImportError('libcudnn.so: no file')", "torch cannot be imported: libcudnn.so: no file"),
        ("__version__ = '2.9.1'", "torch 2.9.1 is built without torch.distributed"),
    ],
)
def test_a_torch_that_cannot_train_is_fatal(tmp_path: Path, module: str, told: str) -> None:
    package, script = tmp_path / "torch", tmp_path / "idle.py"
    package.mkdir()
    script.touch()
    (package / "__init__.py").write_text(module)
    (package / "distributed.py").write_text("def is_available(): return False\n")
    with Nodes(tmp_path, str(script), nodes="1", PYTHONPATH=str(tmp_path)) as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        assert told in nodes.end(0)["reason"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("PET_NNODES", "two"), ("KIT_BACKEND", "mpi"), ("PET_RDZV_CONF", "join_timeout=soon")],
)
def test_a_bad_environment_is_fatal_and_names_the_variable(tmp_path: Path, name: str, value: str) -> None:
    with Nodes(tmp_path, str(SCRIPTS / "allreduce.py"), **{name: value}) as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        end = json.loads((tmp_path / "end-0.json").read_text())
    assert end["outcome"] == "fatal"
    assert name in end["reason"]


def test_failing_storage_is_reported_and_not_charged(tmp_path: Path) -> None:
    """With a real I/O error: all ranks end alike, status shows the reason, and the run continues once it is gone."""
    script = tmp_path / "impatient.py"
    script.write_text(
        "from kittrain.system import storage\n"
        "storage.DELAYS = (0.01,) * 3\n"
        "from kittrain.workloads import toy\n"
        "toy.main()\n"
    )
    command = [str(script), "2", "--samples", "64", "--batch_size", "16"]
    both = {"nodes": "1", "PET_NPROC_PER_NODE": "2", "PET_MAX_RESTARTS": "0", "KIT_RESUME": "1"}
    with Nodes(tmp_path, *command, **both, PET_RDZV_ID="earlier") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0
        (newest,) = nodes.snapshots.glob("step-*")
    manifest = newest / "manifest.json"
    manifest.rename(newest / "good")
    manifest.symlink_to(UNREADABLE)
    command[1] = "3"
    with Nodes(tmp_path, *command, **both) as nodes:
        nodes.start(0)
        nodes.until(0, "rank 0 cannot use its storage ([Errno 5] Input/output error: ")
        end = nodes.end(0)
        (newest / "good").replace(manifest)
        assert nodes.wait(0) == 0
        nodes.until(0, "resuming after step 8, in epoch 3 with 2 ranks")
        output = nodes.output(0)
    assert end["outcome"] == "retryable"
    assert f"Input/output error: '{manifest}'; tried 4 times" in end["reason"]
    assert f"[Errno 5] Input/output error: '{manifest}'; retrying for" in output
    assert "passing over" not in output
