"""A loop of a script's own ends with the same bits, whether or not it was interrupted within an epoch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.loops import LOOPS, train


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_was_killed_and_resumed_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    assert train(name, quiet) == [0, 0]
    assert -9 in train(name, killed, dies_at=13)
    assert train(name, killed) == [0, 0]
    (resumed,) = re.findall(r"resuming after step (\d+)", (killed / "log-0").read_text())
    assert 9 <= int(resumed) < 13, "within the second epoch"
    for rank in (0, 1):
        expected, found = (load(folder / f"result-{rank}.pt") for folder in (quiet, killed))
        assert found["losses"] == {step: loss for step, loss in expected["losses"].items() if step > int(resumed)}
        torch.testing.assert_close(found["state"], expected["state"], rtol=0, atol=0)


def load(path: Path) -> Any:
    return torch.load(path, weights_only=True)
