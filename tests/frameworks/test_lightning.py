"""A real Lightning Trainer: drained within an epoch and resumed, it ends with the weights of an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import DRAINED, log, progress, run, weights

pytestmark = MARKS

SCRIPT = "lit.py"


def trained(folder: Path, *flags: str, size: int = 3) -> dict[str, torch.Tensor]:
    out = folder / "weights.pt"
    assert run(SCRIPT, folder, "--out", str(out), *flags, size=size) == [0] * size, log(folder)
    return weights(out)


def drained(folder: Path, *flags: str, size: int = 3) -> None:
    codes = run(SCRIPT, folder, "--out", str(folder / "never.pt"), "--stop-at", "4", *flags, size=size)
    assert codes == [DRAINED] * size, log(folder)


def test_drained_and_resumed_with_a_worker_process_is_bitwise_the_same(tmp_path: Path) -> None:
    flags = ("--workers", "1", "--batch", "2")
    whole = trained(tmp_path / "whole", *flags)
    shown = progress(tmp_path / "whole")
    assert shown["step"] == shown["total_steps"] == 16
    assert shown["snapshot_step"] == 16  # every third step, and the last one
    assert shown["metrics"]["error"] > 0
    kept = (tmp_path / "whole" / "snapshots" / "lightning").glob("checkpoint-*")
    assert sorted(one.name for one in kept) == ["checkpoint-12", "checkpoint-15", "checkpoint-16"]

    parts = tmp_path / "parts"
    drained(parts, *flags)
    resumed = trained(parts, *flags)
    assert "resuming after step 5 with 3 ranks" in log(parts)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_on_fewer_ranks_a_step_keeps_its_samples(tmp_path: Path) -> None:
    flags = ("--batch", "2", "--dropout", "0")
    whole = trained(tmp_path / "whole", *flags)
    parts = tmp_path / "parts"
    drained(parts, *flags)
    resumed = trained(parts, *flags, size=1)
    assert "resuming after step 5 with 1 rank on cpu, with 3 batches per rank and step" in log(parts)
    assert progress(parts)["step"] == 16
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], rtol=1e-4, atol=1e-5)
