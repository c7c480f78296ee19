"""Which programs of the test cluster are this machine's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.kind import programs
from tests.cluster.kind.settings import HELM, KIND

FITTING = HELM.rpartition(".")[0]


def program(folder: Path, name: str, told: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{told}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("name", "told", "fits"),
    [
        ("helm", f"{HELM}+gabcdef", True),
        ("helm", f"{FITTING}.99", True),
        ("helm", "v4.0.1", False),
        ("helm", f"{FITTING}9.0", False),
        ("helm", "", False),
        ("kind", f"kind {KIND} go1.26.0 linux/amd64", True),
        ("kind", "kind v0.1.0 go1.26.0 linux/amd64", False),
    ],
)
def test_a_program_on_the_path_fits_by_its_minor_version(tmp_path: Path, name: str, told: str, *, fits: bool) -> None:
    path = program(tmp_path, name, told)
    assert programs.on_path(name, str(tmp_path)) == (str(path) if fits else None)


def test_a_program_that_is_missing_or_cannot_run_does_not_fit(tmp_path: Path) -> None:
    assert programs.on_path("helm", str(tmp_path)) is None
    program(tmp_path, "helm", HELM).write_text("no program", encoding="utf-8")
    assert programs.on_path("helm", str(tmp_path)) is None


def test_a_fitting_program_is_linked_and_one_that_fits_no_longer_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = program(tmp_path / "theirs", "helm", HELM)
    ours = tmp_path / "bin"
    monkeypatch.setattr(programs, "BIN", ours)
    monkeypatch.setattr(programs, "is_built", lambda _: False)
    monkeypatch.setattr(programs.on_path, "__defaults__", (f"{ours}:{theirs.parent}",))
    programs.build("helm")
    assert (ours / "helm").readlink() == theirs
    programs.build("helm")  # the link itself is not taken for a program of this machine
    assert (ours / "helm").readlink() == theirs

    program(tmp_path / "theirs", "helm", "v4.0.1")
    monkeypatch.setattr(programs, "STATE", tmp_path)
    monkeypatch.setattr(programs, "_go_mod", lambda *_: "")
    monkeypatch.setattr(programs, "_key", lambda _: "")
    monkeypatch.setattr(programs, "finish", lambda *_: None)
    monkeypatch.setattr(programs, "run", lambda *command, **_: Path(command[-2]).write_text("built", encoding="utf-8"))
    programs.build("helm")
    assert not (ours / "helm").is_symlink()
    assert "v4.0.1" in theirs.read_text(encoding="utf-8")
