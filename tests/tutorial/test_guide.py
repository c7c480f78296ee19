"""The commands of docs/from-tutorial-to-cluster.md run on the local target, and print what their comments say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.local import warm_fork_server

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
GUIDE = (ROOT / "docs" / "from-tutorial-to-cluster.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def commands(block: str) -> Iterator[tuple[list[str], str]]:
    """Each command's arguments, and its expected output."""
    for line in block.splitlines():
        command, _, comment = line.partition("#")
        yield shlex.split(command), comment.partition("prints: ")[2].strip()


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_the_commands_run(tmp_path: Path, block: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    for script in SCRIPTS.glob("*.py"):
        shutil.copy(script, tmp_path)
    environ = {**os.environ, **warm_fork_server.environ(tmp_path_factory)}
    for (kitctl, *words), expected in commands(block):
        assert kitctl == "kitctl"
        command = [sys.executable, "-m", "kitctl", *words]
        done = subprocess.run(command, check=False, cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        assert expected in done.stdout


def test_each_job_is_waited_for_and_has_an_expectation_or_a_successor() -> None:
    submits = [(words, expected) for block in BLOCKS for words, expected in commands(block) if words[1] == "submit"]
    assert len(submits) > 8
    for words, expected in submits:
        assert "--follow" in words or "--wait" in words, words
        assert bool(expected) == ("--follow" in words), words


PYTHON = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_lines_that_load_weights_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved, model = nn.Linear(2, 1), nn.Linear(2, 1)
    torch.save(nn.DataParallel(saved).state_dict(), "checkpoint.pt")
    seen = {"torch": torch, "model": model}
    exec(PYTHON[0], seen)
    torch.testing.assert_close(seen["state"], dict(saved.state_dict()), rtol=0, atol=0)
    torch.testing.assert_close(model.weight, saved.weight, rtol=0, atol=0)


def test_the_script_in_the_guide_is_the_one_that_is_tested() -> None:
    shown = PYTHON[-1]
    text = (SCRIPTS / "multinode_kit.py").read_text(encoding="utf-8")
    assert text.endswith(shown)
    assert text.removesuffix(shown).endswith('"""\n\n')
