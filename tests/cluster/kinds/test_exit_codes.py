"""How the controllers react to each exit code of a pod, with real pods of each kind."""

from __future__ import annotations

import json
from typing import Final

import pytest

from kitctl import kinds
from tests.cluster.jobs import KINDS, Run, often, submit
from tests.cluster.kubectl import Object, get, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

# How a job's only node ends first -> how the job ends, and the outcome of the last pod.
TABLE: Final = {
    "done": ("Succeeded", "done"),
    "drained": ("Succeeded", "done"),
    "retryable": ("Succeeded", "done"),
    "fatal": ("Failed", "fatal"),
}
ENDS: Final = {"Complete": "Succeeded", "Completed": "Succeeded", "Succeeded": "Succeeded", "Failed": "Failed"}
SCRIPT: Final = "tests/cluster/scripts/ending.py"


@pytest.mark.wide
@pytest.mark.parametrize("kind", often("IndexedJob"))
def test_an_exit_code_means_the_same_to_all_kinds(namespace: str, kind: str) -> None:
    codes = kinds.KINDS[kind].exit_codes
    runs = {outcome: submit_ending(namespace, kind, outcome) for outcome in TABLE}
    for outcome, (end, last) in TABLE.items():
        run = runs[outcome]
        assert (outcome, ENDS[end_of(run)["type"]]) == (outcome, end)
        assert exit_codes_of(run) == {codes[outcome], codes[last]}
        assert attempts_of(run) == (1 if outcome == last else 2)
        assert last_outcome_of(run) == last


@pytest.mark.long
def test_what_counts_as_a_lost_pod_of_an_indexed_job(namespace: str) -> None:
    """Kubeflow's operator counts any pod against a limit of 0, and none against a higher one."""
    drained, retryable = (submit_ending(namespace, "IndexedJob", end, spare=0) for end in ("drained", "retryable"))
    fatal = submit_ending(namespace, "IndexedJob", "fatal", spare=5)
    assert end_of(retryable)["reason"] == "BackoffLimitExceeded"
    assert end_of(fatal)["reason"] == "PodFailurePolicy"
    assert end_of(drained)["type"] == "Complete"


def submit_ending(namespace: str, kind: str, outcome: str, *, spare: int = 1) -> Run:
    """A job of one node whose agent, and pod with it, first ends in this way; it may lose ``spare`` pods."""
    restarts = "0" if outcome == "fatal" else "1"
    limits: tuple[str, ...] = (
        "--max-restarts",
        restarts,
        "--env",
        "KIT_RESTART_IN_PLACE=0",
        "--env",
        "KIT_WARM_WORKERS=0",
    )
    if kind != "TrainJob":  # its runtime sets the limit
        limits += ("--set", f"policy.backoffLimit={spare}")
    return submit(namespace, kind, *limits, SCRIPT, outcome, name=outcome)


def end_of(run: Run) -> Object:
    """The terminal condition, once there is one."""
    found: list[Object] = []

    def ended() -> bool:
        job = get(run.namespace, KINDS[run.kind][0], run.name)
        conditions = job.get("status", {}).get("conditions") or []
        found[:] = [one for one in conditions if one["type"] in ENDS and one["status"] == "True"]
        return bool(found)

    until(ended, seconds=240)
    return found[0]


def attempts_of(run: Run) -> int:
    return len((run.folder / "attempts").read_text().splitlines())


def exit_codes_of(run: Run) -> set[int]:
    """Exit codes of all its pods: the operator deletes a pod that it retries, but leaves an event."""
    ended = [pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in run.pods()]
    events = get(run.namespace, "events", "--field-selector", f"involvedObject.name={run.name},reason=ExitedWithCode")
    return {*ended, *(int(event["message"].rpartition(" ")[2]) for event in events["items"])}


def last_outcome_of(run: Run) -> str:
    """The outcome that its last pod reported."""
    last = max(run.pods(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    outcome: str = json.loads(last["status"]["containerStatuses"][0]["state"]["terminated"]["message"])["outcome"]
    return outcome
