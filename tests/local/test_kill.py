"""Nodes are killed repeatedly: the run completes, and every sample counts exactly once."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kittrain.rank.world.order import Order
from tests.exact import assert_each_sample_counts_once, assert_ends_as_undisturbed, undisturbed

if TYPE_CHECKING:
    from tests.local.conftest import Kit

EPOCHS, SAMPLES, BATCH = 4, 512, 16
ORDER = Order(samples=SAMPLES, batch=BATCH, seed=3)
STEPS = EPOCHS * ORDER.steps_per_epoch
WORKLOAD = f"-m kittrain.workloads.toy {EPOCHS} --samples {SAMPLES} --batch_size {BATCH} --seed 3".split()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_kills_and_every_sample_is_counted_exactly_once(kit: Kit) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    records = kit.folder / "records"
    observed = [*WORKLOAD, "--step-time", "0.05", "--record", str(records)]
    kit.run("submit", "--name", "kills", "--nodes", "3", "--snapshot-every", "10", *observed)
    victims = [0, *rng.choices(range(3), k=2)]
    rng.shuffle(victims)
    for number, victim in enumerate(victims):
        step = STEPS * (number + 1) // 5 + rng.randrange(10)
        kit.until("kills", partial(reached, step))
        kit.kill("kills", victim)
        kit.until("kills", partial(lost, number + 1))
    kit.run("wait", "kills")

    ledger = assert_each_sample_counts_once(kit.snapshots("kills"), records, ORDER, epochs=EPOCHS)
    assert len({entry.generation for entry in ledger}) > 1, "the kills left no trace in the history"
    whole = undisturbed(WORKLOAD, kit.folder, ranks=3)
    assert_ends_as_undisturbed(kit.snapshots("kills"), records, whole, tolerance=0)


def reached(step: int, job: dict[str, Any]) -> bool:
    """Whether all ranks train and have reached ``step``."""
    return bool(job["phase"] == "Running" and (job["progress"].get("step") or 0) >= step)


def lost(nodes: int, job: dict[str, Any]) -> bool:
    """Whether this many nodes were started again."""
    return bool(job["restarts"] >= nodes)
