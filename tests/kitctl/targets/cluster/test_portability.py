"""The cluster target works where no local job can run: Windows has neither ``fcntl`` nor process groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kitctl.targets.cluster.apiserver import ApiServer

WITHOUT = """
import importlib.util, os, sys

ABSENT = {"fcntl", "termios", "tty", "pty", "pwd", "grp", "resource"}
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in ABSENT else found(name, package)

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ABSENT:
    sys.modules.pop(name, None)
for name in ("fork", "setsid", "killpg", "getuid", "geteuid", "getpgid", "getsid"):
    delattr(os, name)
sys.meta_path.insert(0, Absent())
from kitctl.cli.main import main
sys.exit(main())
"""


def run(*words: str, kubeconfig: Path | None = None) -> tuple[int, str]:
    """The exit code and output of a command there."""
    environ = {**os.environ, "KITCTL_DEBUG": "1"} | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
    command = [sys.executable, "-c", WITHOUT, *words]
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def test_a_job_is_submitted_watched_and_deleted(server: ApiServer, tmp_path: Path) -> None:
    kubeconfig = server.kubeconfig(tmp_path)
    for words, expected in (
        (("submit", "--name", "run"), "job 'run' submitted"),
        (("status", "run"), "default/run"),
        (("list", "-o", "name"), "run\n"),
        (("logs", "run"), ""),
        (("cancel", "run"), "run: cancelled"),
        (("wait", "run"), "'run' was cancelled"),
        (("delete", "run"), "run: deleted"),
    ):
        code, output = run(*words, kubeconfig=kubeconfig)
        assert code == (103 if words[0] == "wait" else 0), output
        assert expected in output


@pytest.mark.parametrize("words", [("list",), ("submit",), ("status", "run")])
def test_the_local_target_is_an_error_there(words: tuple[str, ...]) -> None:
    code, output = run(*words, "--target", "local")
    assert code == 2, output
    assert "error: the local target runs on Linux and macOS" in output
    assert "fix: use a cluster: --target cluster" in output
