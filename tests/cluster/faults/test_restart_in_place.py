"""Agents that are lost without their pods: started again in place, without a delay that grows."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import pytest

from tests.cluster.commands import kitctl, status
from tests.cluster.jobs import KINDS, Run, submit
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import TORCH_IMAGE
from tests.cluster.kinds.test_exit_codes import SCRIPT, end_of, exit_codes_of
from tests.cluster.kubectl import kubectl, until
from tests.cluster.toy import all_recover, assert_complete_and_exact, has_trained, submit_toy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

LIMIT: Final = 10  # restarts in place of a pod without progress
LONGEST_WAIT: Final = 5.0  # seconds from a loss until the agent is there again; the requirement, not a measurement
KILL: Final = """
import glob, sys, time
sys.path[:0] = glob.glob("/var/run/kitctl.dev/unpacked/kittrain-*")  # where the trainer was unpacked
from kittrain.agent import fault_injection
fault_injection.main()
print(time.time())
"""
AGAIN: Final = re.compile(r"(\S+) \[agent 1\]: started again in place, restart (\d+): the agent was killed by SIGKILL")


@pytest.mark.wide
@pytest.mark.parametrize(
    ("kind", "losses"), [("IndexedJob", 3), *(pytest.param(kind, 10, marks=pytest.mark.long) for kind in KINDS)]
)
def test_losses_of_an_agent_in_a_row_do_not_wait(namespace: str, kind: str, losses: int) -> None:
    """In an image without the trainer: what was sent is unpacked once a pod."""
    run = submit_toy(namespace, kind, "--nodes", "2", "--image", pushed(TORCH_IMAGE), epochs=8)
    until(lambda: has_trained(run, steps=2), seconds=300)
    (before,) = run.pods(1)
    kills = []
    for _ in range(losses):
        with all_recover(run):
            kills.append(kill_agent(run, before["metadata"]["name"]))
    (state,) = (node for node in status(run.name, namespace)["nodes"] if node["index"] == 1)
    assert (state["restarts"], state["reason"]) == (losses, "before: the agent was killed by SIGKILL")
    assert_complete_and_exact(run, epochs=8)
    (pod,) = run.pods(1)
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    starts = starts_again(run, pod["metadata"]["name"])
    assert len(starts) == losses
    assert max(start - kill for start, kill in zip(starts, kills, strict=True)) < LONGEST_WAIT
    assert_each_line_is_read_once(run, losses)


@pytest.mark.long
def test_a_crash_loop_ends_the_pod_and_is_the_jobs_reason(namespace: str) -> None:
    """The ten restarts are those of the pod; the controller has none left."""
    limits = ("--max-restarts", "1", "--set", "policy.backoffLimit=0")
    run = submit(namespace, "IndexedJob", *limits, SCRIPT, "always-retryable")
    assert end_of(run)["reason"] == "BackoffLimitExceeded"
    assert exit_codes_of(run) == {76}
    assert len((run.folder / "attempts").read_text().splitlines()) == LIMIT + 1
    assert f"it was started again in place {LIMIT} times without a new snapshot" in run.logs()


@pytest.mark.wide
def test_a_retryable_end_costs_no_pod(namespace: str) -> None:
    limits = ("--max-restarts", "1", "--set", "policy.backoffLimit=0")
    run = submit(namespace, "IndexedJob", *limits, SCRIPT, "retryable")
    assert end_of(run)["type"] == "Complete"
    assert exit_codes_of(run) == {0}


def kill_agent(run: Run, pod: str) -> float:
    """SIGKILL to a pod's agent alone; returns the time, in Unix seconds."""
    output = kubectl("exec", "-n", run.namespace, pod, "--", "python", "-P", "-c", KILL, "KILL")
    assert "SIGKILL to the agent" in output
    return float(output.split()[-1])


def starts_again(run: Run, pod: str) -> list[float]:
    """When a pod's agent was started again, in Unix seconds."""
    lines = kubectl("logs", "-n", run.namespace, pod, "--timestamps", "--tail=-1").splitlines()
    found = [match for line in lines if (match := AGAIN.match(line))]
    assert [int(match[2]) for match in found] == list(range(1, len(found) + 1))
    return [datetime.fromisoformat(match[1]).timestamp() for match in found]


def assert_each_line_is_read_once(run: Run, losses: int) -> None:
    """With the pods, and without them from the copies on the claim, which continue over an agent's restart."""
    instance = f"app.kubernetes.io/instance={run.name}"
    from_pods = kitctl("logs", run.name, "-n", run.namespace).splitlines()
    kubectl("delete", "pods", "-n", run.namespace, "-l", instance, "--wait=true")
    from_copies = kitctl("logs", run.name, "-n", run.namespace).splitlines()
    for lines in (from_pods, from_copies):
        assert sum("started again in place" in line for line in lines) == losses
