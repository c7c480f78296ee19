"""A short-lived pod that mounts a job's claim: it sleeps while commands are run in it, and is then deleted.

It is made from the job's pod template, so admission accepts it as it accepted the job's pods: image, user, volumes. For
a deleted job the template is rendered again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec

from kitctl.base import names
from kitctl.base.errors import TargetError
from kitctl.base.quantity import amount
from kitctl.code import trainer_package
from kitctl.code.code_tree import NO_SOURCES, Sources
from kitctl.render import objects as render
from kitctl.render.pod_mounts import TRAINER
from kitctl.render.template_values import DEFAULT_REQUESTS
from kitctl.spec.job_spec import JobSpec
from kitctl.targets import SnapshotStore
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import conditions, events, finding, job_facts, lifecycle
from kitctl.targets.cluster.read.existing import create_once
from kitctl.targets.cluster.submit import trainer_sending
from kitctl.targets.cluster.submit.namespace_defaults import apply_namespace_defaults
from kitctl.targets.conflicts import no_snapshots
from kitjob.names import AUTO
from kitjob.sections import Snapshots

RunCommand: TypeAlias = Callable[..., Iterator[bytes]]  # of the command, and what is sent to its stdin

POLL_SECONDS: Final = 0.3
START_SECONDS: Final = 120.0  # the image may have to be pulled
LIFETIME_SECONDS: Final = 3600  # it ends then, even if it is not deleted
SLEEP: Final = ("sleep", str(LIFETIME_SECONDS))
PYTHON_SLEEP: Final = ("python3", "-c", f"import time; time.sleep({LIFETIME_SECONDS})")  # an image may have no `sleep`
COPIED_FIELDS: Final = ("securityContext", "imagePullSecrets", "nodeSelector", "tolerations")  # of the job's pods
VOLUMES: Final = frozenset({"snapshots", "tmp", TRAINER})  # of the job's volumes


@contextmanager
def running(api: Api, job: Object, trainer: Object | None = None) -> Iterator[RunCommand]:
    """A helper pod for the job's claim; yields a function that runs a module of kittrain in it and returns the stdout.

    Args:
        api: the server.
        job: its object, or the rendered manifest of a deleted job.
        trainer: the ConfigMap that such a job mounts.

    Raises:
        Forbidden: this user may not create pods, or run commands in them.
        TargetError: the pod did not start, or a command failed.
    """
    made = create_once(api, manifest(job, call=uuid.uuid4().hex))
    namespace, name = made["metadata"]["namespace"], made["metadata"]["name"]
    python = job_facts.python(job_facts.pod_template(job))
    try:
        if trainer:
            trainer_sending.attach(api, trainer, made)
        _wait(api, namespace, name)
        yield lambda command, *stdin: api.execute(namespace, name, [*python, *command], *stdin)
    finally:
        api.delete(made)


def command_output(api: Api, job: Object, command: Sequence[str], trainer: Object | None = None) -> Iterator[bytes]:
    """The stdout of one module in a helper pod, as it arrives; arguments and errors are those of ``running``."""
    with running(api, job, trainer) as run:
        yield from run(command)


def unsubmitted_job(api: Api, spec: JobSpec, sources: Sources = NO_SOURCES) -> tuple[Object, Object | None]:
    """The manifest of a job that is not created, for a helper pod, and that of the trainer that it mounts."""
    sent = None if spec.trainer == "image" else trainer_package.load()
    rendered = render.manifests(
        apply_namespace_defaults(api, spec), msgspec.structs.replace(sources, trainer=sent), standalone=False
    )
    return rendered[-1], next(filter(trainer_sending.is_shared, rendered), None)


def synthetic_job(api: Api, store: SnapshotStore) -> tuple[Object, Object | None]:
    """A ``unsubmitted_job`` that would use the snapshots of a deleted job.

    Raises:
        NotFound: there is no such claim.
    """
    own = names.snapshots_name(store.name)
    claim = store.claim or own
    if api.find("PersistentVolumeClaim", store.namespace, claim) is None:
        where = f"in namespace {store.namespace!r}, and no claim {claim!r}"
        fix = "--claim names the claim of a deleted job, -n its namespace"
        raise no_snapshots(store.name, where, fix, lambda: finding.job_names(api, store.namespace))
    spec = JobSpec(
        name=store.name,
        namespace=store.namespace,
        image=store.image or AUTO,
        snapshots=Snapshots(claim="" if claim == own else claim),
    )
    return unsubmitted_job(api, spec)


def manifest(job: Object, *, call: str) -> Object:
    """The pod's manifest: one container like the job's, with small requests. Pure."""
    spec = job_facts.pod_template(job)["spec"]
    container = spec["containers"][0]
    fields = {key: spec[key] for key in COPIED_FIELDS if key in spec}
    slim = {key: container[key] for key in ("image", "securityContext") if key in container}
    slim |= {"name": names.CONTAINER, "resources": _resources(container.get("resources") or {})}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job['metadata']['name'][:50]}-{call[:5]}",
            "namespace": job["metadata"]["namespace"],
            "labels": {names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: "helper"},
            "annotations": {names.ANNOTATION_SUBMIT: call},
        },
        "spec": fields
        | {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFETIME_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [
                slim
                | {
                    **_sleep(spec),
                    "volumeMounts": [_writable(one) for one in container["volumeMounts"] if one["name"] in VOLUMES],
                }
            ],
            "volumes": [one for one in spec["volumes"] if one["name"] in VOLUMES],
        },
    }
    return lifecycle.with_owner_reference(pod, job) if "uid" in job["metadata"] else pod


def claim_of(job: Object) -> str:
    """The claim that the helper pod mounts."""
    return job_facts.snapshot_claim(job)


def _sleep(spec: Object) -> Object:
    """The container's command: the image's entrypoint is an init only where the image has the trainer."""
    sent = any(volume["name"] == TRAINER for volume in spec["volumes"])
    return {"command": [*PYTHON_SLEEP]} if sent else {"args": [*SLEEP]}


def _writable(mount: Object) -> Object:
    return mount if mount["name"] == TRAINER else {key: value for key, value in mount.items() if key != "readOnly"}


def _resources(given: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Small requests, and the job's limits, since a quota may require both."""
    limits = {name: most for name, most in given.get("limits", {}).items() if name in DEFAULT_REQUESTS}
    requested = {**limits, **given.get("requests", {})}
    least = {name: min(few, requested.get(name, few), key=amount) for name, few in DEFAULT_REQUESTS.items()}
    return {"requests": least} | ({"limits": limits} if limits else {})


def _wait(api: Api, namespace: str, name: str) -> None:
    """Wait until the pod is running."""
    deadline = time.monotonic() + START_SECONDS
    while not job_facts.is_running(pod := api.get("Pod", namespace, name)):
        if time.monotonic() > deadline:
            why = conditions.pod_reason(pod, job_facts.container_status(pod).get("state", {}), time.time())
            why = why or events.stuck_pods(api, [pod]).get(name) or "its node has not said why"
            raise TargetError(f"the helper pod did not start: {why}", fix="try again later")
        time.sleep(POLL_SECONDS)
