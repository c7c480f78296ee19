"""What a node does before its ranks start if its mirror cannot be used, and who uploads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kitjob.job_keys import JobKeys
from kitjob.sections import Snapshots
from kittrain.agent.processes import mirror
from kittrain.agent.processes.mirror import MirrorCheck, MirrorProcess
from kittrain.job.env import NodeEnv
from kittrain.outcome.termination import Ending
from tests.s3 import S3, serving
from tests.trainer import runs
from tests.trainer.nodes import free_port

pytestmark = pytest.mark.timeout(1800)  # the first one may build the server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with serving(tmp_path_factory.mktemp("s3")) as server:
        server.bucket("mirrors")
        yield server


@pytest.fixture(autouse=True)
def _reached(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environ().items():
        monkeypatch.setenv(name, value)


def node(folder: Path, bucket: str = "mirrors", **facts: Any) -> NodeEnv:
    """Node 0 of a run whose mirror is named after its folder; its processes know that by their environment."""
    url = f"s3://{bucket}/{folder.name}/run"
    os.environ["KIT_SNAPSHOTS_MIRROR"] = url
    os.environ["KIT_SNAPSHOT_DIR"] = str(folder)
    return NodeEnv(
        job=JobKeys(snapshots=Snapshots(mirror=url)),
        **{"run_id": "run-1", "node_index": 0, "snapshot_dir": folder, **facts},
    )


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    for name in ("KIT_SNAPSHOTS_MIRROR", "KIT_SNAPSHOT_DIR"):
        os.environ.pop(name, None)


def checked(one: NodeEnv) -> tuple[Ending | None, list[str]]:
    said: list[str] = []
    return MirrorCheck(one, said.append).ending(), said


def test_a_mirror_that_can_be_used(tmp_path: Path) -> None:
    assert checked(node(tmp_path)) == (None, [])
    assert [path.name for path in tmp_path.iterdir()] == [".mirror"]


def test_only_node_0_looks(tmp_path: Path) -> None:
    assert checked(node(tmp_path, "nowhere", node_index=1)) == (None, [])


def test_before_its_first_use_a_failure_ends_the_node_and_later_it_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, _ = checked(node(tmp_path, "nowhere"))
    assert ending
    assert ending.outcome == "fatal"
    assert "the bucket does not exist (NoSuchBucket); fix: create it" in ending.reason
    assert checked(node(tmp_path)) == (None, [])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "rotated")
    ending, said = checked(node(tmp_path))
    assert ending is None
    assert "warning: snapshots are not mirrored now: " in said[0]
    assert "rotated" not in said[0]
    assert checked(node(tmp_path, run_id="run-2"))[0], "another run has not used it yet"


def test_a_server_that_does_not_answer_is_tried_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    ending, _ = checked(node(tmp_path))
    assert ending
    assert (ending.outcome, "does not answer" in ending.reason) == ("retryable", True)


def test_an_image_without_the_library_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lacking := tmp_path / "lacking").mkdir()
    (lacking / "obstore.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(lacking), prepend=os.pathsep)
    ending, _ = checked(node(tmp_path))
    assert ending
    assert ending.outcome == "fatal"
    assert "fix: add obstore to the requirements of the job" in ending.reason


def test_the_node_of_rank_0_uploads_and_ends_when_all_is_there(tmp_path: Path) -> None:
    (folder := tmp_path / "there").mkdir()
    said: list[str] = []
    one = MirrorProcess(node(folder), tmp_path, said.append)
    one.lead(leads=True)
    manifests = runs.run(folder, 1, 2)
    assert manifests[0].run == "run-1"
    one.finish()
    assert one.report
    assert (one.report.step, one.report.behind, said) == (2, 0, [])
    one.finish()  # again, when the node ends

    (folder / manifests[1].name).rename(tmp_path / "gone")  # such as by a claim that was restored from an older copy
    ending, said = checked(node(folder))
    assert ending is None
    assert said[0].startswith(
        f"warning: s3://mirrors/there/run has {manifests[1].name} of this run, which is newer than"
    )
    assert "submit --continue s3://mirrors/there/run with another --name" in said[0]


def test_what_does_not_get_there_in_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    (folder := tmp_path / "there").mkdir()
    said: list[str] = []
    one = MirrorProcess(node(folder), tmp_path, said.append)
    one.lead(leads=True)
    runs.run(folder, 1)
    one.finish(lambda: 0.1)
    assert len(said) == 1
    assert "does not have everything: it has no snapshot; " in said[0]


def test_a_node_without_rank_0_any_more_stops_uploading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = MirrorProcess(node(tmp_path), tmp_path, lambda _: None)
    started: list[subprocess.Popen[str]] = []
    start = mirror._start

    def seen(*words: Any) -> subprocess.Popen[str]:
        started.append(start(*words))
        return started[-1]

    monkeypatch.setattr(mirror, "_start", seen)
    one.lead(leads=True)
    one.lead(leads=True)
    one.lead(leads=False)
    assert [process.poll() for process in started] == [-9]
    assert one.report is None


def test_one_that_was_killed_is_told_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "AGAIN", 0.0)
    (folder := tmp_path / "killed").mkdir()
    said: list[str] = []
    one = MirrorProcess(node(folder), tmp_path, said.append)
    one.lead(leads=True)
    assert one._process
    one._process.kill()
    one._process.wait()
    assert one.report
    assert one.report.warning == "its process has ended with -9"
    one.watch()
    assert said == ["warning: the mirror's process has ended with -9: starting it again"]
    runs.run(folder, 1)
    one.finish()
    assert (one.report.step, one.report.warning) == (1, "")
