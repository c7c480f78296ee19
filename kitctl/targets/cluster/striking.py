"""Faults on purpose, done to a job's pods: a pod is deleted, or a signal is sent within its container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kitctl.errors import ConflictError, NotFound, TargetError
from kitctl.faults import FAULTS, FaultInjection
from kitctl.targets.cluster import facts
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.resources import Object

# What a pod is deleted with (None: its own). 0: it is forgotten at once, and killed, if its machine does as it is told.
GRACE_SECONDS: Final[Mapping[str, int | None]] = {"kill-node": 0, "preempt": None}


def strike(api: Api, pods: Sequence[Object], strike: FaultInjection) -> None:
    """Do it.

    Raises:
        ConflictError: there is no such node or rank now.
        Forbidden: it takes a right that this user does not have.
    """
    found = [pod for pod in pods if facts.index(pod) == strike.node and facts.running(pod)]
    if not found:
        raise _gone(strike, f"no pod of node {strike.node} runs now")
    namespace, name = found[-1]["metadata"]["namespace"], found[-1]["metadata"]["name"]
    if FAULTS[strike.fault].signal:
        _within(api, namespace, name, strike)
    else:
        api.delete(found[-1] | {"kind": "Pod"}, grace_seconds=GRACE_SECONDS[strike.fault])


def _within(api: Api, namespace: str, pod: str, strike: FaultInjection) -> None:
    done = b""
    try:
        for part in api.execute(namespace, pod, ["python", *strike.command()]):
            done += part
    except NotFound as error:
        raise _gone(strike, f"pod {pod} has just gone") from error
    except TargetError as error:
        if done:
            return  # what was struck has taken its container along
        raise error if error.fix else _gone(strike, error.message) from error


def _gone(strike: FaultInjection, why: str) -> ConflictError:
    return ConflictError(f"{strike.fault} cannot hit {strike.target}: {why}", fix="try again once the job trains")
