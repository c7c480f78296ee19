"""A short-lived pod beside a job's claim, for what only a pod can see: it waits, is asked one thing, and is deleted.

It is made from the job's own pod template, so it passes whatever the job's pods passed: image, user, volumes. Of a job
that is gone it is made as that job would be rendered.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

from kitctl import names, render
from kitctl.errors import TargetError
from kitctl.podview import DEFAULT_REQUESTS
from kitctl.quantity import amount
from kitctl.sections import Snapshots
from kitctl.spec import JobSpec
from kitctl.targets import Kept
from kitctl.targets.cluster import facts, lifecycle, notes
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.existing import create_once
from kitctl.targets.cluster.inherited import inherit
from kitctl.targets.cluster.resources import Object
from kitctl.targets.conflicts import nothing_kept

Run: TypeAlias = Callable[[Sequence[str]], Iterator[bytes]]

POLL_SECONDS: Final = 0.3
START_SECONDS: Final = 120.0  # the image may have to be pulled
LIFE_SECONDS: Final = 3600  # it ends by then even if nobody deletes it
WAIT: Final = ("sleep", str(LIFE_SECONDS))
KEPT: Final = ("securityContext", "imagePullSecrets", "nodeSelector", "tolerations")  # of the job's pods
NEEDED: Final = frozenset({"snapshots", "tmp"})  # volumes; the job's others are not its business


@contextmanager
def beside(api: Api, job: Object) -> Iterator[Run]:
    """A pod beside the job's snapshots: what runs commands of the job's image there, and gives what they print.

    Args:
        api: the server.
        job: as the server has it, or as rendered for one that is gone.

    Raises:
        Forbidden: this user may not create pods, or run commands in them.
        TargetError: the pod did not start, or a command failed.
    """
    made = create_once(api, manifest(job, call=uuid.uuid4().hex))
    namespace, name = made["metadata"]["namespace"], made["metadata"]["name"]
    try:
        _wait(api, namespace, name)
        yield partial(api.execute, namespace, name)
    finally:
        api.delete(made)


def output(api: Api, job: Object, command: Sequence[str]) -> Iterator[bytes]:
    """What one command prints there, as it comes; arguments and errors are those of ``beside``."""
    with beside(api, job) as run:
        yield from run(command)


def stand_in(api: Api, kept: Kept) -> Object:
    """A job that would keep its snapshots where one of that name has kept them, which is gone.

    Raises:
        NotFound: there is no such claim.
    """
    own = names.snapshots_name(kept.name)
    claim = kept.claim or own
    if api.find("PersistentVolumeClaim", kept.namespace, claim) is None:
        place = f"in namespace {kept.namespace!r}, and no claim {claim!r}"
        raise nothing_kept(kept.name, place, "--claim names the claim of a job that is gone, -n its namespace")
    spec = JobSpec(
        name=kept.name,
        namespace=kept.namespace,
        image=kept.image or names.DEFAULT_IMAGE,
        snapshots=Snapshots(claim="" if claim == own else claim),
    )
    return render.manifests(inherit(api, spec))[-1]


def manifest(job: Object, *, call: str) -> Object:
    """The pod: one container as the job's, without its share of the machine. Pure."""
    spec = facts.template(job)["spec"]
    container = spec["containers"][0]
    kept = {key: spec[key] for key in KEPT if key in spec}
    slim = {key: container[key] for key in ("name", "image", "securityContext") if key in container}
    slim |= {"resources": _share(container.get("resources") or {})}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job['metadata']['name'][:50]}-{call[:5]}",
            "namespace": job["metadata"]["namespace"],
            "labels": {names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: "companion"},
            "annotations": {names.ANNOTATION_SUBMIT: call},
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
                    "args": [*WAIT],
                    "volumeMounts": [one for one in container["volumeMounts"] if one["name"] in NEEDED],
                }
            ],
            "volumes": [one for one in spec["volumes"] if one["name"] in NEEDED],
        },
    }
    return lifecycle.owned(pod, job) if "uid" in job["metadata"] else pod


def _share(given: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """A little of the machine, no more than the job has: a quota may demand that a pod says so."""
    limits = {name: most for name, most in given.get("limits", {}).items() if name in DEFAULT_REQUESTS}
    asked = {**limits, **given.get("requests", {})}
    least = {name: min(few, asked.get(name, few), key=amount) for name, few in DEFAULT_REQUESTS.items()}
    return {"requests": least} | ({"limits": limits} if limits else {})


def _wait(api: Api, namespace: str, name: str) -> None:
    """Wait until the pod runs."""
    deadline = time.monotonic() + START_SECONDS
    while not facts.running(pod := api.get("Pod", namespace, name)):
        if time.monotonic() > deadline:
            why = notes.of_pod(pod, facts.container(pod).get("state", {}), time.time())
            raise TargetError(f"the pod that should read the snapshots did not start: {why}", fix="try again later")
        time.sleep(POLL_SECONDS)
