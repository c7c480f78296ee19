"""Several ranks: curves, restarts with other world sizes, and draining, with real processes over gloo."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path

import pytest
import torch

from tests.trainer.nodes import PATIENCE
from tests.trainer.worlds import Ranks
from trainer import evaluate, join, marker, snapshot
from trainer.data import Order
from trainer.ledger import audit
from trainer.workloads.digits import correct, digits, network

pytestmark = pytest.mark.slow

TOY = "trainer.workloads.toy"
SIZE = ("3", "--samples", "50", "--batch_size", "8")  # 7 steps an epoch, the last of 2 samples: fewer than 3 ranks
ORDER = Order(samples=50, batch=8)


def toy(folder: Path, **env: str) -> Ranks:
    folder.mkdir(exist_ok=True)
    return Ranks(folder, TOY, *SIZE, "--record", str(folder / "records"), **env)


def until(ranks: Ranks, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, ranks.log.read_text()
        time.sleep(0.01)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Ranks]:
    """Undisturbed runs by world size."""
    worlds = {size: toy(tmp_path_factory.mktemp(f"world-{size}")) for size in (1, 2, 3)}
    for size, ranks in worlds.items():
        assert ranks.run(size) == [0] * size, ranks.log.read_text()
    return worlds


def test_the_curve_and_the_batches_are_those_of_one_rank(straight: dict[int, Ranks]) -> None:
    assert len(straight[1].losses()) == 21
    for size in (2, 3):
        assert straight[size].losses() == pytest.approx(straight[1].losses(), rel=1e-5)
        for step in range(1, 22):
            parts = [line["ids"] for line in straight[size].recorded() if line["step"] == step]
            whole = next(line["ids"] for line in straight[1].recorded() if line["step"] == step)
            assert len(parts) == size
            assert sorted(chain(*parts)) == sorted(whole)
    assert any(line["ids"] == [] for line in straight[3].recorded())  # the dummy was needed, and weighed nothing


def test_all_ranks_drain_at_one_step_and_go_on_bit_by_bit(tmp_path: Path, straight: dict[int, Ranks]) -> None:
    ranks = toy(tmp_path)
    ranks.start(2, "--step-time", "0.2")
    until(ranks, lambda: any(line["step"] >= 3 for line in ranks.recorded()))
    ranks.signal(1, signal.SIGTERM)
    ranks.signal(1, signal.SIGTERM)
    assert ranks.wait() == [75, 75], ranks.log.read_text()
    (step,) = {len(path.read_text().splitlines()) for path in ranks.records.glob("*.jsonl")}  # a line a step, each rank
    assert step < 21
    assert (ranks.snapshots / f"step-{step:08}-g0001").is_dir()
    assert not marker.finished(ranks.snapshots, "local")
    assert ranks.run(2) == [0, 0], ranks.log.read_text()
    assert ranks.losses() == straight[2].losses()
    assert marker.finished(ranks.snapshots, "local")


def test_changing_worlds_and_kills_count_each_sample_once(tmp_path: Path, straight: dict[int, Ranks]) -> None:
    ranks = toy(tmp_path, KIT_SNAPSHOT_EVERY="3")
    for generation, size in enumerate((2, 1, 3), start=1):
        ranks.start(size, "--step-time", "0.2")
        until(ranks, lambda: any(ranks.snapshots.glob(f"step-*-g{generation:04}")))  # noqa: B023  called here only
        for rank in range(size):
            ranks.signal(rank, signal.SIGKILL)
        ranks.wait()
    assert ranks.run(2) == [0, 0], ranks.log.read_text()
    assert ranks.losses() == pytest.approx(straight[1].losses(), rel=1e-5)

    newest = max(ranks.snapshots.glob("step-*"))
    ledger = snapshot.read_manifest(newest).ledger
    assert audit(ledger, ORDER).epoch == 3
    assert all(before.generation <= after.generation for before, after in pairwise(ledger))
    assert len({entry.generation for entry in ledger}) == 4
    recorded = ranks.recorded()
    for epoch in range(3):
        committed = [
            sample
            for entry in ledger
            if entry.epoch == epoch
            for line in recorded
            if line["generation"] == entry.generation and entry.first_step <= line["step"] <= entry.last_step
            for sample in line["ids"]
        ]
        assert sorted(committed) == list(range(50))


def test_the_model_file_is_what_plain_torch_loads(straight: dict[int, Ranks]) -> None:
    weights = torch.load(straight[2].snapshots / "model.pt", weights_only=True)
    torch.nn.Linear(20, 1).load_state_dict(weights)


def test_digits_are_recognized(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, "trainer.workloads.digits", "--epochs", "4")
    assert ranks.run(2) == [0, 0]
    told = ranks.log.read_text().splitlines()[-1].split()
    assert told[0] == "accuracy"
    assert told[2:] == ["%", "on", "359", "held-back", "images"]
    assert float(told[1]) >= 97
    model = network(batchnorm=True)
    model.load_state_dict(torch.load(ranks.snapshots / "model.pt", weights_only=True))
    with join() as world:
        accuracy = evaluate(world, model, digits()[1], correct)
    assert f"{100 * accuracy:.2f}" == told[1]  # what was told is true of the file


def test_a_rank_that_is_made_to_fail_says_so(tmp_path: Path) -> None:
    ranks = toy(tmp_path)
    assert ranks.run(1, "--fail-at", "3") == [1]
    assert "ValueError: failing at step 3, as --fail-at asked" in ranks.log.read_text()
    assert max(line["step"] for line in ranks.recorded()) == 3
