"""What the API server has of a job, for a report or a bug report. Changes nothing, and reads no Secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kitctl.base import documents, names
from kitctl.base.errors import KitError
from kitctl.kinds import of_object
from kitctl.state.record import TargetRecords
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.queue import kueue, queues
from kitctl.targets.cluster.read import finding, job_facts
from kitjob import document, variables

MOST_EVENTS: Final = 500  # the newest ones


def of_job(api: Api, job: Object, cluster: str) -> TargetRecords:
    """The records of a job: its object, its pods, their events, its report, its Workload."""
    pods = finding.pods(api, job)
    template = job_facts.pod_template(job)
    image = template["spec"]["containers"][0].get("image", "")
    told = {"nodes": of_object(job).nodes(job), "image": image, "args": job_facts.script(template)}
    run = documents.read_run(job_facts.plain_environment(job))
    environment = {
        "runs on": f"{cluster} ({of_object(job).name})",
        "kitctl at submission": run.kitctl,
        **_machines(pods),
    }
    settings = told | _document(job)
    return TargetRecords(settings=settings, environment=environment, files=dict(_files(api, job, pods)))


def _document(job: Object) -> dict[str, Any]:
    """The settings that its pods were told; empty where they have no document."""
    try:
        settings, _ = document.read(job_facts.plain_environment(job).get(variables.KIT_SPEC, "").replace("$$", "$"))
    except document.DocumentError:
        return {}
    return settings


def _machines(pods: list[Object]) -> Mapping[str, str]:
    found = sorted({pod["spec"].get("nodeName", "") for pod in pods} - {""})
    images = sorted({job_facts.container_status(pod).get("imageID", "") for pod in pods} - {""})
    return {"machines": ", ".join(found), "image": ", ".join(images)}


def _files(api: Api, job: Object, pods: list[Object]) -> Iterator[tuple[str, Any]]:
    where = job["metadata"]
    yield "job.yaml", job
    for pod in pods:
        yield f"pods/{pod['metadata']['name']}.yaml", pod
    for name, ask in {
        "events.yaml": lambda: _events(api, job, pods),
        "status.yaml": lambda: api.find("ConfigMap", where["namespace"], names.status_name(where["name"])),
        "workload.yaml": lambda: _workload(api, job),
    }.items():
        yield from _asked(name, ask)


def _asked(name: str, ask: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    """An answer, or why there is none."""
    try:
        if found := ask():
            yield name, found
    except KitError as error:
        yield f"{name}.txt", f"cannot be read: {error}"


def _events(api: Api, job: Object, pods: list[Object]) -> list[Object]:
    about = {one["metadata"]["uid"] for one in (job, *pods)}
    found = api.select("Event", job["metadata"]["namespace"])
    ours = [one for one in found if (one.get("involvedObject") or {}).get("uid") in about]
    return sorted(ours, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))[-MOST_EVENTS:]


def _workload(api: Api, job: Object) -> Object | None:
    queued = kueue.queue_of(job)
    return kueue.workload_of(job, queues.all_workloads(api, job["metadata"]["namespace"])) if queued else None
