"""A loop with the real Accelerate: drained within an epoch and resumed, it ends with the same weights."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import DRAINED, log, progress, run, weights

pytestmark = MARKS

SCRIPT = "accelerated.py"


def test_drained_and_resumed_is_bitwise_the_same(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(SCRIPT, whole, "--out", str(whole / "weights.pt")) == [0, 0], log(whole)
    assert progress(whole)["step"] == 16
    assert run(SCRIPT, parts, "--out", str(parts / "never.pt"), "--stop-at", "6") == [DRAINED] * 2, log(parts)
    assert run(SCRIPT, parts, "--out", str(parts / "weights.pt")) == [0, 0], log(parts)
    assert "resuming after step 7, in epoch 2 with 2 ranks" in log(parts)
    expected, resumed = weights(whole / "weights.pt"), weights(parts / "weights.pt")
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
