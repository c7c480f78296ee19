"""What a node does before its ranks start if its mirror cannot be used, and who uploads."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from kitjob.job_keys import JobKeys
from kitjob.report import MirrorReport
from kitjob.sections import Snapshots
from kittrain.agent.processes import mirror
from kittrain.agent.processes.mirror import MirrorCheck, MirrorProcess, Progress
from kittrain.job.env import NodeEnv
from kittrain.outcome import marker
from kittrain.outcome.termination import Ending
from kittrain.rank.snapshots.mirror.uploading import INTERVAL
from tests.s3 import S3, serving
from tests.s3_proxy import Fault, Proxy, in_front_of
from tests.trainer import runs
from tests.trainer.nodes import free_port

Storage = Literal["claim", "perNode", "memory"]
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


def node(
    folder: Path, bucket: str = "mirrors", *, storage: Storage = "claim", mirror_timeout: str = "30m", **facts: Any
) -> NodeEnv:
    """Node 0 of a run whose mirror is named after its folder; its processes know that by their environment."""
    url = f"s3://{bucket}/{folder.name}/run"
    os.environ["KIT_SNAPSHOTS_MIRROR"] = url
    os.environ["KIT_SNAPSHOT_DIR"] = str(folder)
    return NodeEnv(
        job=JobKeys(snapshots=Snapshots(mirror=url, storage=storage, mirror_timeout=mirror_timeout)),
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


def test_what_is_uploaded_again_after_a_failure_is_no_progress() -> None:
    one = Progress(since=0.0)

    def seen(now: float, left: int, *, step: int = 20, behind: int = 2) -> float:
        one.see(MirrorReport(step=step, behind=behind, behind_bytes=left, behind_steps=108), now)
        return one.since

    assert seen(1.0, 200) == 1.0, "what is to be uploaded is known"
    assert [seen(2.0, 200), seen(3.0, 150), seen(4.0, 150)] == [1.0, 3.0, 3.0]
    assert [seen(5.0, 200), seen(6.0, 160)] == [3.0, 3.0], "it begins anew"
    assert seen(7.0, 140) == 7.0
    assert seen(8.0, 100, step=128, behind=1) == 8.0
    assert [seen(9.0, 200), seen(10.0, 150)] == [8.0, 8.0], "an older report that is read late"
    assert seen(11.0, 300, behind=3) == 11.0, "there is more than was known"


@pytest.fixture
def counted(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A slow proxy, by whose requests the agent's clock goes: a second for each."""
    with in_front_of(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        clock = SimpleNamespace(monotonic=lambda: float(len(proxy.seen)), sleep=time.sleep)
        monkeypatch.setattr(mirror, "time", clock)
        yield proxy


LIMIT = 14  # requests; a snapshot with its place in the index takes six


@pytest.mark.parametrize("storage", ["memory", pytest.param("perNode", marks=pytest.mark.long)])
def test_a_slow_store_has_time_as_long_as_it_takes_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Proxy, storage: Storage
) -> None:
    (folder := tmp_path / storage).mkdir()
    monkeypatch.setattr(mirror, "FINISH", float(LIMIT))
    monkeypatch.setenv("KIT_SNAPSHOTS_STORAGE", storage)
    monkeypatch.setenv("KIT_SNAPSHOTS_KEEP", "9")
    one = MirrorProcess(node(folder, storage=storage, mirror_timeout=f"{LIMIT}s"), tmp_path, pytest.fail)
    runs.run(folder, 1, 2, 3, 4, 5)
    counted.rule = lambda seen: Fault(delay=INTERVAL * 1.1) if seen.method == "PUT" else None
    one.lead(leads=True)
    one.finish()
    assert one.report
    assert (one.report.step, one.report.behind, one.missing) == (5, 0, "")
    assert len(counted.seen) > 2 * LIMIT


def test_what_is_given_up_is_lost_only_if_the_last_snapshot_is(tmp_path: Path) -> None:
    """Older ones are missed by nobody: what was trained goes on from the last one."""
    for trained, lost in ((None, True), (3, True), (2, False)):
        said: list[str] = []
        one = MirrorProcess(node(tmp_path, storage="memory"), tmp_path, said.append)
        one._tell(MirrorReport(url="s3://mirrors/run", step=2, behind=1), trained)
        assert "s3://mirrors/run does not have everything: its newest snapshot is of step 2" in said[0]
        assert (bool(one.lost), bool(one.missing)) == (lost, lost)


@pytest.mark.parametrize("there", [3, 2])
def test_a_folder_that_has_lost_the_end_is_told_although_all_of_it_is_there(tmp_path: Path, there: int) -> None:
    """Such as one in memory, which somebody deleted."""
    (folder := tmp_path / f"end-{there}").mkdir()
    said: list[str] = []
    one = MirrorProcess(node(folder, storage="memory"), tmp_path, said.append)
    one.lead(leads=True)
    runs.run(folder, 1, there)
    marker.mark(folder, "run-1", {"step": 3})
    one.finish()
    if there == 3:
        assert (said, one.lost) == ([], "")
    else:
        assert one.lost.endswith("its newest snapshot is of step 2; what is newer is not to be found")
        assert said == [f"warning: {one.lost}"]


def test_a_run_that_had_nothing_left_to_train_has_lost_nothing(tmp_path: Path) -> None:
    (folder := tmp_path / "nothing").mkdir()
    one = MirrorProcess(node(folder, storage="memory"), tmp_path, pytest.fail)
    one.lead(leads=True)
    marker.mark(folder, "run-1", {"step": 3})
    one.finish()
    assert (one.lost, one.missing) == ("", "")


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
