"""The process of one command: how it ends when it is interrupted, and when its output cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
INTERRUPTER = """
import importlib.abc, os, signal, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == os.environ.get("INTERRUPT_AT"):
            os.environ.pop("INTERRUPT_AT")
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


def run(*words: str, stdout: int = subprocess.PIPE, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kitctl", *words]
    given = {**os.environ, **environ}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=given, check=False)


@pytest.mark.parametrize(
    "module",
    ["kitctl.cli", "click", "kitctl.cli.commands.render", "kitctl.cli.flags", "kitctl.input.specfile", "msgspec"],
)
def test_an_interrupt_during_imports_is_no_traceback(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTER, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = run("render", "--nodes", "2", PYTHONPATH=path, INTERRUPT_AT=module)
    assert (done.returncode, done.stderr.strip()) == (130, "")  # click ends the line of ^C
    assert run("version", PYTHONPATH=path, INTERRUPT_AT="none").returncode == 0


def test_scripts_with_the_names_of_libraries_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("random", "calendar", "json", "click", "tempfile", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(77)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = run("submit", "--dry-run=client", "--", "/opt/train.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert 'kind: "Job"' in done.stdout


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTER}", encoding="utf-8"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = run("version", PYTHONPATH=path, INTERRUPT_AT="kitctl.cli.commands.version")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux'")
@pytest.mark.parametrize(
    "words", [("version",), ("--help",), ("schema",), ("list", "--target", "local", "-o", "json"), ("submit", "--help")]
)
def test_a_full_disk_is_one_line(words: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        done = run(*words, stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", [("version",), ("--help",), ("schema",), ("render", "--nodes", "2")])
def test_a_closed_pipe_is_silent(words: tuple[str, ...]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = run(*words, stdout=theirs)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, "")
