"""A job whose pods nobody runs: made by the test, which stands in for the job controller, the scheduler and kubelets.

These would write each pod six times, for two minutes of a core; here are the two writes that make it what it is. To who
only reads, the job looks as if it ran: nothing does, and there is no log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

from kitctl.targets.cluster.api import MERGE, Api
from kitctl.targets.cluster.resources import RESOURCES
from tests.cluster.jobs import rendered
from tests.cluster.kind.steps import works
from tests.cluster.kubectl import Object, apply, get, kubectl, until

NOBODY: Final = "kitctl.test/nobody"
POD: Final = RESOURCES["Pod"]
WRITERS: Final = 4


@contextmanager
def running(api: Api, namespace: str, count: int) -> Iterator[None]:
    """The Indexed Job ``many`` with so many pods, all of them running; they are gone afterwards."""
    options = ("--nodes", str(count), "--set", "snapshots.enabled=false")
    objects = json.loads(rendered(namespace, "IndexedJob", *options, name="many"))["items"]
    (job,) = (one for one in objects if one["kind"] == "Job")
    job["spec"] |= {"suspend": False, "managedBy": NOBODY}  # the job controller leaves it alone
    apply(namespace, *objects)
    owner = get(namespace, "job", "many")["metadata"]["uid"]
    with ThreadPoolExecutor(WRITERS) as writers:
        each(writers, partial(make, api, job, owner), count)
    yield
    kubectl("delete", "job", "many", "-n", namespace, "--cascade=orphan")
    # By one request, which may end early: the garbage collector takes one for each.
    pods = f"{POD.path(namespace)}?gracePeriodSeconds=0"
    until(lambda: works("kubectl", "delete", "--raw", pods, seconds=60) and not get(namespace, "pods")["items"])


def each(writers: ThreadPoolExecutor, work: Callable[[int], None], count: int) -> None:
    """Do something for each number; an error is raised."""
    for _ in writers.map(work, range(count)):
        pass


def make(api: Api, job: Object, owner: str, index: int) -> None:
    """One pod, as the job controller makes it, and as a kubelet says that it runs."""
    template, namespace = job["spec"]["template"], job["metadata"]["namespace"]
    name, mark = f"many-{index}-test", {"batch.kubernetes.io/job-completion-index": str(index)}
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "many", "uid": owner, "controller": True}
    pod = {
        "metadata": {
            "name": name,
            "labels": template["metadata"]["labels"] | mark | {"batch.kubernetes.io/job-name": "many"},
            "annotations": template["metadata"].get("annotations", {}) | mark,
            "ownerReferences": [reference],
        },
        "spec": template["spec"] | {"schedulerName": NOBODY},
    }
    api.transport.json("POST", "Pod", POD.path(namespace), body=pod)
    api.transport.json("PATCH", "Pod", POD.path(namespace, name, "status"), body={"status": runs(pod)}, content=MERGE)


def runs(pod: Object) -> Object:
    """The status of a pod that runs."""
    now = "2026-01-01T00:00:00Z"
    container = pod["spec"]["containers"][0]
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "ContainersReady", "Ready")],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
        ],
    }
