"""Outputs in working folders outlive their job, and nothing else of these folders does."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kitctl.cli.main import main
from kitctl.code.code_tree import CodeFile, CodeTree, tree_name
from kitctl.targets.local.folder import JobFolder, state_home, write
from tests.kitctl.localjobs import ended_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SENT = {"train.py": b"print()\n", "conf.yaml": b"lr: 1\n"}


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_TARGET", "local")


def job_with_workdir(**spec: Any) -> JobFolder:
    """An ended job of two nodes, with the working folders as they were sent."""
    tree = CodeTree(
        files={name: CodeFile(sha256=sha256(data).hexdigest(), size=len(data)) for name, data in SENT.items()},
        links={"link": "conf.yaml"},
    )
    folder = ended_job("job", workdir=".", **spec)
    write(folder.path / "job.json", msgspec.structs.replace(folder.job, code=tree.digest))
    (folder.code_store / "trees").mkdir(parents=True)
    (folder.code_store / tree_name(tree.digest)).write_bytes(tree.encoded)
    for node in (folder.node(0), folder.node(1)):
        node.workdir.mkdir(parents=True)
        for name, data in SENT.items():
            (node.workdir / name).write_bytes(data)
        (node.workdir / "link").symlink_to("conf.yaml")
        (node.workdir / ".kit-workdir").write_text(tree.digest)
        (node.workdir / "__pycache__").mkdir()
        (node.workdir / "__pycache__" / "model.pyc").write_bytes(b"0")
    return folder


def kept() -> dict[str, str]:
    """The outputs that are kept, by path without the run."""
    root = state_home() / "outputs" / "default" / "job" / "run"
    return {path.relative_to(root).as_posix(): path.read_text() for path in _files(root)}


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())


def test_what_ranks_wrote_stays_when_the_job_is_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    folder = job_with_workdir()
    (folder.node(0).workdir / "out").mkdir()
    (folder.node(0).workdir / "out" / "ck.pt").write_text("weights")
    (folder.node(0).workdir / "out" / "latest").symlink_to("ck.pt")
    (folder.node(1).workdir / "conf.yaml").write_text("lr: 2\n")  # of the same size as what was sent
    assert main(["status", "job"]) == 0
    assert f"{folder.path}/nodes/<i>/workdir" in capsys.readouterr().out
    assert main(["delete", "job"]) == 0
    assert kept() == {"node-0/out/ck.pt": "weights", "node-0/out/latest": "weights", "node-1/conf.yaml": "lr: 2\n"}
    root = state_home() / "outputs" / "default" / "job" / "run"
    assert f"its outputs stay (3 files, 18 B): {root}" in capsys.readouterr().err
    assert not folder.path.exists()


def test_a_job_that_wrote_nothing_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    job_with_workdir()
    assert main(["delete", "job"]) == 0
    assert "outputs" not in capsys.readouterr().err
    assert not (state_home() / "outputs").exists()


def test_outputs_are_deleted_only_when_asked_and_confirmed(capsys: pytest.CaptureFixture[str]) -> None:
    folder = job_with_workdir()
    (folder.node(0).workdir / "ck.pt").write_text("weights")
    assert main(["delete", "job", "--outputs"]) == 2
    assert "delete 'job' and all its outputs?" in capsys.readouterr().err
    assert (folder.node(0).workdir / "ck.pt").exists()
    assert main(["delete", "job", "--outputs", "-y"]) == 0
    assert not (state_home() / "outputs").exists()
    assert not folder.path.exists()


def test_shared_outputs_stay_where_they_are_until_asked(capsys: pytest.CaptureFixture[str]) -> None:
    folder = job_with_workdir(outputs="out/ck/")
    shared = state_home() / "snapshots" / "default" / "job" / "outputs" / "run"
    shared.mkdir(parents=True)
    for node in (folder.node(0), folder.node(1)):
        (node.workdir / "out").mkdir()
        (node.workdir / "out" / "ck").symlink_to(shared)
    (shared / "ck.pt").write_text("weights")
    (folder.node(1).workdir / "out" / "log").write_text("mine")
    assert main(["delete", "job", "--snapshots"]) == 2
    assert f"which include its outputs ({shared})" in capsys.readouterr().err
    assert main(["delete", "job"]) == 0
    told = capsys.readouterr().err
    assert f"its outputs stay (1 file, 7 B): {shared}\n" in told
    assert (shared / "ck.pt").read_text() == "weights"
    assert kept() == {"node-1/out/log": "mine"}, "what is private is kept as well, and no link"
    assert f"its outputs stay (1 file, 4 B): {state_home() / 'outputs'}" in told


def test_shared_outputs_are_deleted_when_asked_and_with_the_snapshots(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--outputs"], ["--snapshots"]):
        folder = job_with_workdir(outputs="ck")
        output = state_home() / "snapshots" / "default" / "job" / "outputs" / "run" / "ck.pt"
        output.parent.mkdir(parents=True)
        output.write_text("weights")
        other = output.parents[1] / "earlier" / "ck.pt"
        other.parent.mkdir(parents=True, exist_ok=True)
        other.touch()
        assert main(["delete", "job", *words, "-y"]) == 0
        assert not output.exists()
        assert other.exists() == (words == ["--outputs"]), "of an earlier run"
        assert "stay (" not in capsys.readouterr().err
        assert not folder.path.exists()


def test_a_job_whose_outputs_cannot_be_kept_stays(capsys: pytest.CaptureFixture[str]) -> None:
    folder = job_with_workdir()
    (folder.node(0).workdir / "a.pt").write_text("a")
    (folder.node(1).workdir / "b.pt").write_text("b")
    (state_home() / "outputs" / "default" / "job" / "run").mkdir(parents=True)
    (state_home() / "outputs" / "default" / "job" / "run" / "node-1").write_text("in the way")
    assert main(["delete", "job"]) == 1
    assert "cannot be kept, so the job stays" in capsys.readouterr().err
    assert main(["status", "job"]) == 0
    (state_home() / "outputs" / "default" / "job" / "run" / "node-1").unlink()
    assert main(["delete", "job"]) == 0, "the second attempt completes the first"
    assert kept() == {"node-0/a.pt": "a", "node-1/b.pt": "b"}


def test_without_the_record_of_what_was_sent_all_is_kept() -> None:
    folder = job_with_workdir()
    next((folder.code_store / "trees").iterdir()).unlink()
    assert main(["delete", "job"]) == 0
    assert set(kept()) == {f"node-{i}/{name}" for i in (0, 1) for name in ("train.py", "conf.yaml", "link")}


def test_a_job_with_a_damaged_record_keeps_its_outputs_too() -> None:
    folder = job_with_workdir()
    (folder.node(1).workdir / "ck.pt").write_text("weights")
    (folder.path / "job.json").write_text("{")
    assert main(["delete", "job"]) == 0
    assert (state_home() / "outputs" / "default" / "job" / "unknown" / "node-1" / "ck.pt").read_text() == "weights"
