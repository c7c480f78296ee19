"""A rank whose work is done by programs that it starts says that their steps are not seen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kittrain.agent.hooks.launching.started_programs import program
from tests.trainer.nodes import Nodes


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ([sys.executable, "train.py", "0"], "train.py"),
        (["python3", "-u", "src/train.py", "--lr=1"], "train.py"),
        ("python -m package.train --lr 1", "package.train"),
        ([Path("/usr/bin/python3.11"), b"train.py"], "train.py"),
        (["python", "-c", "print()", "x.py"], ""),
        ([sys.executable, "/v/lib/python3.11/site-packages/torch/_inductor/compile_worker/__main__.py"], ""),
        (["python", "-m", "torch.utils.collect_env"], ""),
        (["python", "-m", "pip", "install", "x.py"], ""),
        (["ffmpeg", "-i", "x.py"], ""),
        ("echo 'unfinished", ""),
        ([], ""),
        (["python"], ""),
        ([1, 2], ""),
        (None, ""),
        (b"python train.py", ""),
    ],
)
def test_which_script_a_command_runs(command: object, expected: str) -> None:
    assert program(command) == expected


LAUNCHER = """
import os, subprocess, sys
child = os.path.join(os.path.dirname(__file__), "child.py")
children = [subprocess.Popen([sys.executable, child]) for _ in range(2)]
assert [child.wait() for child in children] == [0, 0]
{after}
"""
TRAINS = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("after", "told"), [("", True), (TRAINS, False)])
def test_programs_that_a_rank_starts_are_told_where_no_step_is_seen(tmp_path: Path, *, after: str, told: bool) -> None:
    (tmp_path / "child.py").write_text("import subprocess\nsubprocess.run(['true'])\n")
    script = tmp_path / "launch.py"
    script.write_text(LAUNCHER.format(after=after))
    with Nodes(tmp_path, str(script), nodes="1") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
        note = nodes.end(0)["note"]
    assert (note == "rank 0: the steps of programs that it has started are not seen: 2 of child.py") is told
