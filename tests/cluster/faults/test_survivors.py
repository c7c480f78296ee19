"""A pod of a sharded model's job is killed, and drained: the ranks of the other one live on, each with its part."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.cluster.faults.test_faults import delete_pod
from tests.cluster.jobs import Run, often, submit
from tests.cluster.kubectl import until
from tests.cluster.toy import ORDER, all_recover, assert_complete_and_exact, has_trained

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SCRIPT = "tests/trainer/scripts/sharded_loop.py"
EPOCHS = 12


@pytest.mark.wide
@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_ranks_of_the_other_pod_live_on(namespace: str, kind: str) -> None:
    options = ("--nodes", "2", "--procs-per-node", "2", "--set", "policy.survivors=live")
    words = (str(EPOCHS), "--step-time", "0.1", "--record", "/snapshots/record")
    data = ("--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch))
    run = submit(namespace, kind, *options, SCRIPT, *words, *data)
    until(partial(has_trained, run, steps=10), seconds=300)
    with all_recover(run):
        delete_pod(run, 1, "--grace-period=0", "--force")
    with all_recover(run):
        delete_pod(run, 1)
    assert_complete_and_exact(run, epochs=EPOCHS)
    for rank in (0, 1):
        taken = steps_of(run, rank)
        assert [step for _, step in taken] == list(range(1, EPOCHS * ORDER.steps_per_epoch + 1))
        assert {generation for generation, _ in taken} == {1, 2, 3}


def steps_of(run: Run, rank: int) -> list[tuple[int, int]]:
    """Generation and number of each step that a rank has taken, which has been one process."""
    (file,) = (run.folder / "record").glob(f"rank-{rank}-pid-*.jsonl")
    return [(step["generation"], step["step"]) for step in map(json.loads, file.read_text().splitlines())]
