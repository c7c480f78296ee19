"""A real Hugging Face Trainer: drained within an epoch and resumed, it ends with the weights of an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import DRAINED, log, progress, run, weights

pytestmark = MARKS

SCRIPT = "hf.py"


def trained(folder: Path, *flags: str, size: int = 3) -> dict[str, torch.Tensor]:
    out = folder / "weights.pt"
    assert run(SCRIPT, folder, "--out", str(out), *flags, size=size) == [0] * size, log(folder)
    return weights(out)


def drained(folder: Path, *flags: str, size: int = 3) -> None:
    codes = run(SCRIPT, folder, "--out", str(folder / "never.pt"), "--stop-at", "4", *flags, size=size)
    assert codes == [DRAINED] * size, log(folder)


def test_drained_and_resumed_is_bitwise_the_same(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", "--batch", "2")
    shown = progress(tmp_path / "whole")
    assert shown["step"] == shown["total_steps"] == shown["snapshot_step"] == 16
    assert shown["epochs"] == 2
    assert shown["metrics"]["eval_loss"] > 0

    parts = tmp_path / "parts"
    drained(parts, "--batch", "2")
    assert progress(parts)["snapshot_step"] == 5  # agreed on one step after the signal's
    # What a killed rank leaves: the newest folder is not complete.
    (parts / "snapshots" / "huggingface" / "checkpoint-6").mkdir()
    resumed = trained(parts, "--batch", "2")
    assert "resuming after step 5 with 3 ranks" in log(parts)
    assert progress(parts)["resumed_from"] == 5
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_on_fewer_ranks_a_step_keeps_its_samples(tmp_path: Path) -> None:
    flags = ("--batch", "2", "--dropout", "0")
    whole = trained(tmp_path / "whole", *flags)
    parts = tmp_path / "parts"
    drained(parts, *flags)
    resumed = trained(parts, *flags, size=1)
    assert "resuming after step 5 with 1 rank on cpu, with 3 batches per rank and step" in log(parts)
    for weights_of_run in (whole, resumed):
        _leave_out_keys(weights_of_run)
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], rtol=1e-5, atol=1e-6)


def test_a_changed_number_of_samples_per_step_is_a_warning(tmp_path: Path) -> None:
    drained(tmp_path, size=1)
    trained(tmp_path, size=2)
    assert "the size of a step changes" in log(tmp_path)


def _leave_out_keys(found: dict[str, torch.Tensor]) -> None:
    """The keys' biases have no part in a softmax: their gradient is what rounding leaves, which AdamW makes large."""
    for name, bias in found.items():
        if name.endswith("c_attn.bias"):
            bias.chunk(3)[1].zero_()
