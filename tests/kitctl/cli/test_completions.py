"""Completion in real shells: what a user gets by the tabulator."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kitjob.report import NodeAssignment, Report
from tests.kitctl.localjobs import ended_job

START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
LOAD = {
    "bash": "bind 'set enable-bracketed-paste off'; source <(kitctl completion bash)",
    "zsh": "autoload -Uz compinit; compinit -u -D; source <(kitctl completion zsh)",
}
CASES = [
    ("kitctl sus", "kitctl suspend"),
    ("kitctl submit --kind Ind", "--kind IndexedJob"),
    ("kitctl submit --backend gl", "--backend gloo"),
    ("kitctl submit --workload mn", "--workload mnist"),
    ("kitctl submit --set snapshots.everyS", "--set snapshots.everySteps="),
    ("kitctl submit --requirements req", "--requirements requirements.txt"),
    ("kitctl submit --nodes 3 trai", "kitctl submit --nodes 3 training.py"),
    ("kitctl submit -- trai", "kitctl submit -- training.py"),
    ("kitctl submit -- training.py --data trai", "--data training.py"),
    ("kitctl status --target local uniq", "--target local unique-job"),
    ("kitctl doctor --target local uniq", "--target local unique-job"),
    ("kitctl doctor --target local -- trai", "--target local -- training.py"),
    ("kitctl logs --target local unique-job --rank 1", "--rank 12"),
    ("kitctl list --phase Susp", "--phase Suspended"),
    ("kitctl init mni", "kitctl init mnist"),
]


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with files, a job with two ranks, and kitctl on the PATH."""
    monkeypatch.chdir(tmp_path)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("training.py", "requirements.txt"):
        (tmp_path / name).write_text("", encoding="utf-8")
    script = bin_folder / "kitctl"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom kitctl.__main__ import main\nsys.exit(main())\n")
    script.chmod(0o755)
    nodes = {"0": NodeAssignment(ranks=(0, 0)), "1": NodeAssignment(ranks=(12, 12))}
    ended_job("unique-job", report=Report(formed=1.0, world_size=2, nodes=nodes))
    path = {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    return {**os.environ, **path, "PS1": "ready> ", "TERM": "dumb", "HOME": str(tmp_path), "PROMPT_EOL_MARK": ""}


class Shell:
    """An interactive shell in a terminal of its own."""

    def __init__(self, name: str, environ: dict[str, str]) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            START[name], stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""
        self.send(f"{LOAD[name]}; echo lo''aded\n")
        assert self.await_text("loaded"), self.seen

    def send(self, text: str) -> None:
        self.seen = ""
        os.write(self.ours, text.encode())

    def await_text(self, expected: str) -> bool:
        """Read until the text is there; a minute is enough for any machine."""
        until = time.monotonic() + 60.0
        while expected not in self.seen and time.monotonic() < until:
            if select.select([self.ours], [], [], 0.2)[0]:
                self.seen += os.read(self.ours, 4096).decode(errors="replace").replace("\r", "").replace("\b", "")
        return expected in self.seen

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "bash" else pytest.mark.wide)
        for name in (*START, "fish")
        if shutil.which(name)
    ],
)
def test_the_tabulator_completes(name: str, environ: dict[str, str]) -> None:
    if name == "fish":
        assert_fish_completes(environ)
        return
    shell = Shell(name, environ)
    try:
        missed = []
        for line, completed in CASES:
            shell.send(f"{line}\t")
            if not shell.await_text(completed):
                missed.append((line, shell.seen))
            shell.send("\x15")  # forget the line
        assert missed == []
    finally:
        shell.close()


def assert_fish_completes(environ: dict[str, str]) -> None:
    """Ask fish itself, which has a command for it."""
    for line, completed in CASES:
        command = ["fish", "--no-config", "-c", f"kitctl completion fish | source; complete -C '{line}'"]
        offered = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
        assert completed.split()[-1] in [one.split("\t")[0] for one in offered.splitlines()], (line, offered)


def test_nothing_is_printed_where_a_cluster_does_not_answer(environ: dict[str, str]) -> None:
    asked = {"_KITCTL_COMPLETE": "bash_complete", "COMP_WORDS": "kitctl status --target cluster x", "COMP_CWORD": "4"}
    done = subprocess.run(
        ["kitctl"], env={**environ, **asked, "KUBECONFIG": "/nonexistent"}, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
