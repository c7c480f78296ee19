"""Whether the Service that gives a job's nodes their names is there, if one cannot resolve node 0's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from kitctl.base.errors import Forbidden
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import reports

# ``run-0.run.team.svc``: the second part is the Service; an operator makes one for each pod, of the pod's name.
UNRESOLVED: Final = re.compile(r"waiting for node 0 at ([\w-]+)(?:\.([\w-]+))?[\w.-]*:\d+ \(\[Errno -\d+\] ")


def missing(api: Api, namespace: str, status: Object | None) -> Mapping[str, str]:
    """By pod, that the Service is gone: a request if a node says that it cannot resolve node 0's name, else none."""
    said = ((index, one.pod, UNRESOLVED.match(one.what)) for index, one in reports.preparing(status).items())
    index, pod, found = next((one for one in said if one[2]), (0, "", None))  # the others ask for the same
    service = found and (found[2] or found[1])
    with suppress(Forbidden):
        if found and service and api.find("Service", namespace, service) is None:
            return {pod: f"the Service {service} is gone: node {index} cannot resolve node 0's name {found[1]}"}
    return {}
