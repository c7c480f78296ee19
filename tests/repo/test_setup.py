"""``make setup`` reports what a machine lacks. (All other tests show that it works.)"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import setup, system_changes

ROOT = Path(__file__).parents[2]
PARTS = ("tools/__init__.py", "tools/constraints.txt", "tools/setup.py", "tools/system_changes.py")


def make_setup(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run ``make setup`` in a fresh clone whose path has a space."""
    clone = folder / "a clone"
    (clone / "tools").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", *PARTS):
        shutil.copy(ROOT / name, clone / name)
    command = ["make", "setup", f"PYTHON={python}"]
    return subprocess.run(command, check=False, cwd=clone, capture_output=True, text=True)


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\n[ "$1" = --version ]\n')
    old.chmod(0o755)
    done = make_setup(tmp_path, str(old))
    assert done.returncode != 0
    assert "Python 3.9.2 is too old: 3.11 or later is needed" in done.stdout
    assert not (tmp_path / "a clone" / ".venv").exists()


def test_no_python_is_reported(tmp_path: Path) -> None:
    done = make_setup(tmp_path, str(tmp_path / "nothing"))
    assert done.returncode != 0
    assert "install Python 3.11" in done.stdout


def test_a_version_is_set_for_each_package_that_setup_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = (
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["trainer"],
        *project["dependency-groups"]["dev"],
    )
    constraints = [Requirement(line) for line in (ROOT / setup.CONSTRAINTS).read_text(encoding="utf-8").splitlines()]
    pinned = {canonicalize_name(one.name): one for one in constraints}
    for one in map(Requirement, wanted):
        (version,) = pinned[canonicalize_name(one.name)].specifier
        assert version.operator == "=="
        assert one.specifier.contains(version.version), one
    assert not [one.name for one in constraints if one.url]


def test_a_missing_kubectl_fails_under_ci_and_is_reported_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    setup._need_kubectl()
    assert "kubectl is not on PATH" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    with pytest.raises(SystemExit, match="kubectl is not on PATH"):
        setup._need_kubectl()


def test_a_declined_debian_package_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "apt-get" else None)
    monkeypatch.setattr(setup, "_run", lambda *command: pytest.fail(f"ran {command}"))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(system_changes.VARIABLE, "1")
    setup._need_kubectl()
    announcement, missing = capsys.readouterr().out.splitlines()
    assert announcement == "KIT_NO_SYSTEM is set: will not install the Debian package kubernetes-client"
    assert "kubectl is not on PATH" in missing


def test_a_debian_package_is_announced_before_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "apt-get" else None)
    monkeypatch.setattr(setup, "_run", lambda *command: commands.append((capsys.readouterr().out, *command)))
    monkeypatch.delenv(system_changes.VARIABLE, raising=False)
    setup._need_kubectl()
    assert "install the Debian package kubernetes-client (KIT_NO_SYSTEM=1 declines)" in commands[0][0]
    assert [command[1:3] for command in commands] == [("apt-get", "update"), ("apt-get", "install")]


def test_only_torch_and_torchvision_come_from_torchs_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert [name.partition(">")[0] for name in setup._torch_requirements()] == ["torch", "torchvision"]


def test_an_environment_that_is_up_to_date_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools").mkdir()
    for name in setup.INPUTS:
        shutil.copy(ROOT / name, tmp_path / name)
    ready = tmp_path / "ready"
    ready.touch()
    before = max(path.stat().st_mtime for path in setup.INPUTS)
    os.utime(ready, (before + 1, before + 1))
    setup.main(ready)
    assert not (tmp_path / ".venv").exists()
