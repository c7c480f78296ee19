"""The lm workload learns, sharded or not, resumes either way, and writes a sample."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import torch

from kittrain.workloads import lm
from tests.trainer.sharded import skip_without_fsdp_on_cpus
from tests.trainer.worlds import TRAINING_SECONDS, Ranks

LOSS = re.compile(r"^loss ([\d.]+) nats per byte on \d+ test windows", re.MULTILINE)
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "64", "--batch-size", "32", "--sample", "40"]


def loss(ranks: Ranks) -> float:
    found = LOSS.search(ranks.log.read_text())
    assert found is not None, ranks.log.read_text()
    return float(found[1])


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "more"),
    [pytest.param(3, [], id="plain, on 3 ranks", marks=pytest.mark.long), pytest.param(2, ["--sharded"], id="sharded")],
)
def test_a_sharded_run_that_recomputes_resumes(tmp_path: Path, size: int, more: list[str]) -> None:
    skip_without_fsdp_on_cpus()
    ranks = Ranks(
        tmp_path, "kittrain.workloads.lm", *SMALL, "--epochs", "1", KIT_RESUME="1", KIT_SNAPSHOTS_EVERY_STEPS="20"
    )
    ranks.start(2, "--sharded", "--recompute")
    while not list(ranks.snapshots.glob("step-*")):
        pass
    ranks.signal(1, signal.SIGTERM)
    assert ranks.wait() == [75, 75]
    assert ranks.run(size, *more) == [0] * size
    output = ranks.log.read_text()
    assert "resuming after step" in output
    assert loss(ranks) < 2.8  # that of each byte's frequency is 3.3
    assert "\nsample:\nThe " in output


@pytest.mark.long
@pytest.mark.timeout(2 * TRAINING_SECONDS)
def test_it_reaches_its_target(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, "kittrain.workloads.lm", OMP_NUM_THREADS="1")
    assert ranks.run(2, seconds=TRAINING_SECONDS) == [0, 0]
    assert loss(ranks) < 1.6


def model(*more: str) -> tuple[lm.GPT, list[torch.Tensor]]:
    torch.manual_seed(0)
    args = lm.options().parse_args([*SMALL, *more])
    return lm.GPT(args), [torch.randint(256, (3, 65), dtype=torch.uint8)]


def test_recomputing_gives_the_same_loss_and_gradients() -> None:
    (plain, batch), (recomputed, _) = model(), model("--recompute")
    losses = [lm.losses(one, batch).mean() for one in (plain, recomputed)]
    for one in losses:
        one.backward()
    assert losses[0] == losses[1]
    for first, second in zip(plain.parameters(), recomputed.parameters(), strict=True):
        assert first.grad is not None
        assert second.grad is not None
        assert first.grad.equal(second.grad)


def test_a_position_depends_on_what_stands_before_it_only() -> None:
    network, (windows,) = model()
    changed = windows.clone()
    changed[:, 30] ^= 1
    before, after = (network(one[:, :-1].long()) for one in (windows, changed))
    assert before[:, :30].equal(after[:, :30])
    assert not before[:, 30:].allclose(after[:, 30:])


def test_windows_overlap_by_one_byte_and_do_not_cross_into_the_test_text() -> None:
    train, test = (one.tensors[0] for one in lm.text(64))
    assert train.shape[1] == test.shape[1] == 65
    assert train[:-1, -1].equal(train[1:, 0])
    assert bytes(train.flatten()[:3].tolist()).isascii()
    share = len(test) / (len(train) + len(test))
    assert share == pytest.approx(lm.TEST_SHARE, abs=0.01)


def test_the_same_seed_writes_the_same_sample() -> None:
    network, _ = model()
    args = lm.options().parse_args(SMALL)
    first = lm.sample(network, "def ", args)
    assert first.startswith("def ")
    assert first == lm.sample(network, "def ", args)
    args.seed = 1
    assert first != lm.sample(network, "def ", args)


def test_a_width_that_heads_do_not_divide_is_an_error() -> None:
    with pytest.raises(SystemExit, match="--width 128 is not divisible by --heads 3"):
        lm.main(["--heads", "3"])
