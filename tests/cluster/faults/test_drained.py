"""A script that saves and exits with 0 on SIGTERM when its pod is deleted: the job takes all of its steps."""

from __future__ import annotations

import pytest

from tests.cluster.jobs import Run, often, submit
from tests.cluster.kubectl import kubectl, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

STEPS = 150
SCRIPT = "tests/cluster/scripts/plain.py"


@pytest.mark.wide
@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_a_deleted_pod_whose_script_exits_with_0_is_replaced(namespace: str, kind: str) -> None:
    run = submit(namespace, kind, "--nodes", "2", SCRIPT, str(STEPS), name="plain")
    until(lambda: all(len(steps_of(run, rank)) > 3 for rank in range(2)), seconds=240)
    (pod,) = run.pods(1)
    kubectl("delete", "pod", "-n", namespace, pod["metadata"]["name"])
    run.wait()
    for rank in range(2):
        assert steps_of(run, rank) == list(range(STEPS))
        assert (run.folder / f"saved-{rank}").exists(), "both got SIGTERM, and neither has finished"


def steps_of(run: Run, rank: int) -> list[int]:
    """The steps that a rank has taken, in all of its pods."""
    try:
        lines = (run.folder / f"steps-{rank}").read_text().splitlines()
    except (OSError, ValueError):  # no folder yet
        return []
    return [int(line) for line in lines]
