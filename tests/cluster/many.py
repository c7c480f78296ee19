"""A job with simulated pods: the test writes them in place of the Job controller, the scheduler and the kubelets.

Those would write each pod six times, for two CPU minutes; the test writes each twice. To clients that only read, the
job looks as if it ran, though nothing runs and there are no logs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

from kitctl.targets.cluster.connection.api import MERGE, Api
from kitctl.targets.cluster.connection.resources import RESOURCES
from tests.cluster.jobs import rendered
from tests.cluster.kind.steps import works
from tests.cluster.kubectl import Object, apply, get, kubectl, until

NO_CONTROLLER: Final = "kitctl.test/none"
POD: Final = RESOURCES["Pod"]
WRITERS: Final = 4


@contextmanager
def running(api: Api, namespace: str, count: int) -> Iterator[None]:
    """The Indexed Job ``many`` with ``count`` running pods; they are deleted afterwards."""
    options = ("--nodes", str(count), "--set", "snapshots.enabled=false")
    objects = json.loads(rendered(namespace, "IndexedJob", *options, name="many"))["items"]
    (job,) = (one for one in objects if one["kind"] == "Job")
    job["spec"] |= {"suspend": False, "managedBy": NO_CONTROLLER}  # the Job controller ignores it
    apply(namespace, *objects)
    owner = get(namespace, "job", "many")["metadata"]["uid"]
    with ThreadPoolExecutor(WRITERS) as writers:
        each(writers, partial(make, api, job, owner), count)
    yield
    kubectl("delete", "job", "many", "-n", namespace, "--cascade=orphan")
    # One request, which may end early; the garbage collector would need one per pod.
    pods = f"{POD.path(namespace)}?gracePeriodSeconds=0"
    until(lambda: works("kubectl", "delete", "--raw", pods, seconds=60) and not get(namespace, "pods")["items"])


def each(writers: ThreadPoolExecutor, work: Callable[[int], None], count: int) -> None:
    """Call ``work`` with each number; raises its first error."""
    for _ in writers.map(work, range(count)):
        pass


def make(api: Api, job: Object, owner: str, index: int) -> None:
    """Create one pod as the Job controller does, with the status that a kubelet reports for a running one."""
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
        "spec": template["spec"] | {"schedulerName": NO_CONTROLLER},
    }
    api.transport.json("POST", "Pod", POD.path(namespace), body=pod)
    api.transport.json("PATCH", "Pod", POD.path(namespace, name, "status"), body={"status": runs(pod)}, content=MERGE)


def runs(pod: Object) -> Object:
    """The status of a running pod."""
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
