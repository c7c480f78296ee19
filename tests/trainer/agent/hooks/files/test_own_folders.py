"""A script that saves by itself is ended where its checkpoints would be lost with a node."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PLAIN = """
import os, sys, torch
from kittrain.agent.hooks.files import own_folders
own_folders.watch(sys.modules["torch.optim.optimizer"], os.environ)
{before}
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(20):
    weight.square().sum().backward()
    optimizer.step()
    print(step, flush=True)
"""
USED = "import types, sys; sys.modules['kittrain.rank.snapshots.manager'] = types.SimpleNamespace(used=True)"


def run(before: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    script = PLAIN.format(before=before)
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.wide
def test_a_plain_script_ends_after_a_few_steps_and_is_told_why() -> None:
    ended = run(KIT_SNAPSHOTS_STORAGE="perNode")
    assert ended.returncode == 1
    assert ended.stdout.split() == ["0", "1", "2", "3"]
    assert "this script trains without them: what it saves would be lost with its node; fix:" in ended.stderr


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize(("before", "storage"), [(USED, "perNode"), ("", "claim")])
def test_others_go_on(before: str, storage: str) -> None:
    ended = run(before, KIT_SNAPSHOTS_STORAGE=storage)
    assert (ended.returncode, len(ended.stdout.split())) == (0, 20)
