"""Objects that were made with a job and that somebody has deleted: the Service, the Secret, what its volumes mount.

The API server is asked only if a node says what it lacks, or the event of a pod does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from kitctl.base import names
from kitctl.base.errors import Forbidden
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import reports

# ``run-0.run.team.svc``: the second part is the Service; an operator makes one for each pod, of the pod's name.
UNRESOLVED: Final = re.compile(r"waiting for node 0 at ([\w-]+)(?:\.([\w-]+))?[\w.-]*:\d+ \(\[Errno -\d+\] ")
# What agents say that cannot prove to each other that they are of one run.
UNLIKE: Final = re.compile(
    r"waiting for the rendezvous of this run at \S+ "
    r"\((node 0 has (?:the run's secret, and this node has none|no secret, and this node has the run's secret))\)"
)
NOT_FOUND: Final = re.compile(r'FailedMount\b.*?(configmap|secret) "([^"]+)" not found', re.DOTALL)
KINDS: Final[Mapping[str, str]] = {"configmap": "ConfigMap", "secret": "Secret"}


def missing(api: Api, job: Object, status: Object | None, stuck: Mapping[str, str]) -> Mapping[str, str]:
    """By pod, which of them is gone; ``stuck``: by pod, the latest warning about it."""
    found: dict[str, str] = {}
    for says in (_service(api, job, status), _secret(api, job, status), _mounted(api, job, stuck)):
        with suppress(Forbidden):
            found |= says
    return found


def _service(api: Api, job: Object, status: Object | None) -> Iterator[tuple[str, str]]:
    """Of the first node that cannot resolve node 0's name: the others ask for the same."""
    said = ((index, one.pod, UNRESOLVED.match(one.what)) for index, one in reports.preparing(status).items())
    index, pod, found = next((one for one in said if one[2]), (0, "", None))
    service = found and (found[2] or found[1])
    if found and service and _is_gone(api, "Service", job, service):
        yield pod, f"the Service {service} is gone: node {index} cannot resolve node 0's name {found[1]}"


def _secret(api: Api, job: Object, status: Object | None) -> Iterator[tuple[str, str]]:
    """A pod mounts it if it is there: one that is made later starts without."""
    said = ((index, one.pod, UNLIKE.match(one.what)) for index, one in reports.preparing(status).items())
    index, pod, found = next((one for one in said if one[2]), (0, "", None))
    secret = names.secret_name(job["metadata"]["name"])
    if found and _is_gone(api, "Secret", job, secret):
        yield pod, f"the Secret {secret} is gone: {found[1].replace('this node', f'node {index}')}"


def _mounted(api: Api, job: Object, stuck: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What a pod's volume names, if it was made with the job and not by its user."""
    name = job["metadata"]["name"]
    own = {names.sources_name(name), names.requirements_name(name), names.secret_name(name), *names.trainer_names(name)}
    for pod, said in stuck.items():
        found = NOT_FOUND.search(said)
        if found and found[2] in own and _is_gone(api, KINDS[found[1]], job, found[2]):
            yield pod, f"the {KINDS[found[1]]} {found[2]}, which was made with the job, is gone: {said}"


def _is_gone(api: Api, kind: str, job: Object, name: str) -> bool:
    return api.find(kind, job["metadata"]["namespace"], name) is None
