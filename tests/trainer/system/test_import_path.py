"""A folder of packages is found after the user's own paths and before the interpreter's packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kittrain.system.import_path import add_packages, with_packages

SHOW = "import sys; print(sys.path)"


@pytest.mark.parametrize("given", [(), ("first", "second")])
def test_a_running_process_has_the_path_of_one_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    base = {"PYTHONPATH": os.pathsep.join(str(tmp_path / name) for name in given)}
    before = _path(base)
    after = with_packages(base, tmp_path / "packages")
    monkeypatch.setattr(sys, "path", list(before))
    add_packages(tmp_path / "packages", after)
    assert sys.path == _path(after)
    assert sys.path.index(str(tmp_path / "packages")) == len(given)


def test_its_programs_are_found() -> None:
    assert with_packages({"PATH": "/bin"}, Path("/packages"))["PATH"] == f"/packages/bin{os.pathsep}/bin"
    assert with_packages({"A": "b"}, None) == {"A": "b"}


def _path(environ: dict[str, str]) -> list[str]:
    done = subprocess.run([sys.executable, "-P", "-c", SHOW], env=environ, capture_output=True, text=True, check=True)
    path: list[str] = eval(done.stdout)  # noqa: S307, RUF100 - a list of strings
    return path
