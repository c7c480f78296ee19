"""One folder for what the script writes, on all nodes of a run, and after a node was replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kittrain.agent.setup.shared_outputs import VARIABLE, OutputsError, share_outputs
from kittrain.job.env import NodeEnv
from tests.trainer.settings import job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    start = os.getcwd()  # noqa: PTH109 - as text, since the test's folder may be gone
    monkeypatch.setenv(VARIABLE, "")
    yield
    os.chdir(start)


def entered(folder: Path, node: NodeEnv, **sent: str) -> Path:
    """A node's working folder with what was sent, once it shares its outputs."""
    folder.mkdir(exist_ok=True)
    for name, text in sent.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    os.chdir(folder)
    share_outputs(node, pytest.fail)
    return folder


def node_of(claim: Path, **given: object) -> NodeEnv:
    return NodeEnv(**{"job": job(outputs="runs/ck"), "snapshot_dir": claim, "run_id": "run", **given})  # type: ignore[arg-type]


def test_all_nodes_see_one_folder_and_so_does_a_replacement(tmp_path: Path) -> None:
    node, claim = node_of(tmp_path / "claim"), tmp_path / "claim"
    first, second = (entered(tmp_path / name, node) for name in ("first", "second"))
    (first / "runs" / "ck" / "best 1.pt").write_text("epoch 1")
    assert (second / "runs" / "ck" / "best 1.pt").read_text() == "epoch 1"
    third = entered(tmp_path / "third", node)
    assert (third / "runs" / "ck" / "best 1.pt").read_text() == "epoch 1"
    assert os.environ[VARIABLE] == str(claim / "outputs" / "run")
    entered(first, node)
    assert (first / "runs" / "ck" / "best 1.pt").read_text() == "epoch 1", "an agent that starts again changes nothing"
    assert {path.name for path in (claim / "outputs").iterdir()} == {"run"}


def test_what_was_sent_is_copied_once_and_never_over_newer(tmp_path: Path) -> None:
    node = node_of(tmp_path / "claim")
    first = entered(tmp_path / "first", node, runs__ck__best="sent", runs__ck__deep__last="sent", runs__other="private")
    assert (first / "runs" / "ck" / "deep" / "last").read_text() == "sent"
    assert (first / "runs" / "other").read_text() == "private"
    (first / "runs" / "ck" / "best").write_text("trained")
    (first / "runs" / "ck" / "deep" / "last").unlink()
    second = entered(tmp_path / "second", node, runs__ck__best="sent", runs__ck__deep__last="sent")
    assert (second / "runs" / "ck" / "best").read_text() == "trained"
    assert not (second / "runs" / "ck" / "deep" / "last").exists(), "what the run deleted stays deleted"
    assert [path.name for path in (second / "runs").iterdir()] == ["ck"], "nothing is left aside"


def test_a_crash_between_the_two_renames_is_mended(tmp_path: Path) -> None:
    node = node_of(tmp_path / "claim", job=job(outputs="ck"))
    folder = tmp_path / "node"
    (folder / ".ck.sent").mkdir(parents=True)
    (folder / ".ck.sent" / "old").write_text("")
    entered(folder, node)
    assert (folder / "ck").is_symlink()
    assert not (folder / ".ck.sent").exists()


def test_another_run_begins_with_what_was_sent_and_a_resumed_one_with_what_was_written(tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    logged: list[str] = []
    first = entered(tmp_path / "a", node_of(claim, run_id="one"), runs__ck__best="sent")
    (first / "runs" / "ck" / "best").write_text("trained")
    second = entered(tmp_path / "b", node_of(claim, run_id="two"), runs__ck__best="sent")
    assert (second / "runs" / "ck" / "best").read_text() == "sent"
    (second / "runs" / "ck" / "new").write_text("later")
    third = node_of(claim, run_id="three", job=job(outputs="runs/ck", resume=True))
    folder = tmp_path / "c"
    (folder / "runs" / "ck").mkdir(parents=True)
    (folder / "runs" / "ck" / "best").write_text("sent again")
    os.chdir(folder)
    share_outputs(third, logged.append)
    assert logged == ["continuing with the outputs of run two"]
    fourth = entered(tmp_path / "d", third)
    assert (fourth / "runs" / "ck" / "new").read_text() == "later"
    assert (claim / "outputs" / "one" / "best").read_text() == "trained", "no other run's outputs are touched"
    entered(
        tmp_path / "e", node_of(tmp_path / "empty", job=job(outputs="runs/ck", resume=True))
    )  # there is nothing to continue


START = """
import os, sys
from pathlib import Path
from kitjob.job_keys import JobKeys
from kittrain.job.env import NodeEnv
from kittrain.agent.setup.shared_outputs import share_outputs
os.chdir(sys.argv[1])
share_outputs(NodeEnv(job=JobKeys(outputs="ck"), snapshot_dir=Path(sys.argv[2]), run_id="run"), print)
Path("ck", Path.cwd().name).touch()
"""


def test_nodes_that_start_together_lose_nothing(tmp_path: Path) -> None:
    names = [f"node-{number}" for number in range(4)]
    for name in names:
        (tmp_path / name / "ck").mkdir(parents=True)
        for number in range(50):
            (tmp_path / name / "ck" / str(number)).write_text("sent")
    command = [sys.executable, "-P", "-c", START]
    nodes = [subprocess.Popen([*command, str(tmp_path / name), str(tmp_path / "claim")]) for name in names]
    assert [node.wait(timeout=120) for node in nodes] == [0] * 4
    shared = tmp_path / "claim" / "outputs" / "run"
    assert {path.name for path in shared.iterdir()} == {*names, *map(str, range(50))}


@pytest.mark.parametrize("name", ["file", "file/below", "link", "link/below", "../out", "/out", "."])
def test_a_place_that_is_taken_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "node"
    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_text("mine")
    (folder / "link").symlink_to("folder")
    with pytest.raises(OutputsError, match=r"^outputs: .*; fix: "):
        entered(folder, node_of(tmp_path / "claim", job=job(outputs=name)))
    assert (folder / "file").read_text() == "mine"
    assert not (tmp_path / "claim").exists()


def test_a_folder_that_cannot_be_written_is_a_warning_with_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_args: object, **_kwargs: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("pathlib.Path.symlink_to", read_only)
    monkeypatch.chdir(tmp_path)
    logged: list[str] = []
    share_outputs(node_of(tmp_path / "claim", job=job(outputs="ck")), logged.append)
    (warning,) = logged
    assert "Read-only file system" in warning
    assert "$KIT_OUTPUTS_DIR" in warning
    assert os.environ[VARIABLE] == str(tmp_path / "claim" / "outputs" / "run")


def test_without_outputs_nothing_is_made(tmp_path: Path) -> None:
    entered(tmp_path / "node", node_of(tmp_path / "claim", job=job()))
    assert not (tmp_path / "claim").exists()
    assert not os.environ[VARIABLE]
