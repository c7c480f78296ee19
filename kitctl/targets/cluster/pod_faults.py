"""Injects faults into a job's pods: deletes a pod, or has the trainer's own program do it within its container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kitctl.base.deadline import within
from kitctl.base.errors import NotFound, TargetError
from kitctl.state.faults import FAULTS, FaultInjection
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.connection.transport import REQUEST_SECONDS
from kitctl.targets.cluster.read import job_facts
from kitctl.targets.conflicts import fault_misses

# Grace period of the deletion; None: the pod's own. 0: the pod is removed at once, and its kubelet kills it if it can.
GRACE_SECONDS: Final[Mapping[str, int | None]] = {"kill-node": 0, "preempt": None}


def inject(api: Api, pods: Sequence[Object], injection: FaultInjection) -> None:
    """Inject a fault.

    Raises:
        ConflictError: there is no such node or rank at the moment.
        Forbidden: this user lacks a permission.
    """
    found = [pod for pod in pods if job_facts.node_index(pod) == injection.node and job_facts.is_running(pod)]
    if not found:
        raise fault_misses(injection, f"no pod of node {injection.node} is running")
    if FAULTS[injection.fault].inside:
        _within(api, found[-1], injection)
    else:
        api.delete(found[-1] | {"kind": "Pod"}, grace_seconds=GRACE_SECONDS[injection.fault])


def _within(api: Api, found: Object, injection: FaultInjection) -> None:
    output, namespace, pod = list[bytes](), found["metadata"]["namespace"], found["metadata"]["name"]
    command = [*job_facts.python(found), *injection.command()]

    def run() -> None:
        for part in api.execute(namespace, pod, command, container=job_facts.container_name(found)):
            output.append(part)  # what was printed counts, even if the connection breaks then

    try:
        within(REQUEST_SECONDS, run)
    except TimeoutError as error:
        if not output:
            raise TargetError(f"pod {pod} did not answer: {error}", fix="see its node, or try again") from error
    except NotFound as error:
        raise fault_misses(injection, f"pod {pod} was deleted") from error
    except TargetError as error:
        if output:
            return  # the fault ended the container, too
        raise error if error.fix else fault_misses(injection, error.message) from error
