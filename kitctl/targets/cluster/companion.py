"""A short-lived pod beside a job's claim, for what only a pod can see: it runs one command and is deleted.

It is made from the job's own pod template, so it passes whatever the job's pods passed: image, user, volumes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from kitctl import names
from kitctl.errors import TargetError
from kitctl.targets.cluster import facts, lifecycle, notes
from kitctl.targets.cluster.api import Api, Object

POLL_SECONDS: Final = 0.3
START_SECONDS: Final = 120.0  # the image may have to be pulled
LIFE_SECONDS: Final = 600  # it ends by then even if nobody deletes it
NEEDED: Final = frozenset({"snapshots", "tmp"})  # volumes; the job's others are not its business


def output(api: Api, job: Object, command: Sequence[str]) -> Iterator[str]:
    """The lines that a command prints beside the job's snapshots, each with its time.

    Raises:
        Forbidden: this user may not create pods.
        TargetError: the pod did not start, or the command failed.
    """
    pod = manifest(job, command, suffix=uuid.uuid4().hex[:5])
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    api.apply(pod)
    try:
        _wait(api, namespace, name)
        yield from api.lines(namespace, name, follow="true")
        _check(api.get("Pod", namespace, name), command)
    finally:
        api.delete("Pod", namespace, name)


def manifest(job: Object, command: Sequence[str], *, suffix: str) -> Object:
    """The pod: one container as the job's, without its share of the machine. Pure."""
    spec = facts.template(job)["spec"]
    container = spec["containers"][0]
    kept = {key: spec[key] for key in ("securityContext", "nodeSelector", "tolerations") if key in spec}
    slim = {key: container[key] for key in ("name", "image", "securityContext") if key in container}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job['metadata']['name'][:50]}-{suffix}",
            "namespace": job["metadata"]["namespace"],
            "labels": {names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: "companion"},
        },
        "spec": kept
        | {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFE_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [
                slim
                | {
                    "args": [*command],
                    "volumeMounts": [one for one in container["volumeMounts"] if one["name"] in NEEDED],
                }
            ],
            "volumes": [one for one in spec["volumes"] if one["name"] in NEEDED],
        },
    }
    return lifecycle.owned(pod, job)


def _wait(api: Api, namespace: str, name: str) -> None:
    """Wait until the pod has something to say."""
    deadline = time.monotonic() + START_SECONDS
    while not facts.has_logs(pod := api.get("Pod", namespace, name)):
        if time.monotonic() > deadline:
            why = notes.of_pod(pod, facts.container(pod).get("state", {}), time.time())
            raise TargetError(f"the pod that should read the snapshots did not start: {why}", fix="try again later")
        time.sleep(POLL_SECONDS)


def _check(pod: Object, command: Sequence[str]) -> None:
    code = facts.container(pod).get("state", {}).get("terminated", {}).get("exitCode", 0)
    if code:
        fix = "the image's trainer must be of kitctl's version; kubectl can mount the claim into a pod of your own"
        raise TargetError(f"{' '.join(command)} failed beside the snapshots: exit code {code}", fix=fix)
