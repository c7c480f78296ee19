"""Why pods ended before a process of theirs became an agent, which would have left a message: from their logs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kitctl.base.errors import KitError
from kitctl.state.last_words import LINES, ended_with, last_words
from kitctl.state.logs import parse
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import conditions, job_facts

BEFORE_THE_AGENT: Final = frozenset({1, 126, 127, 255})  # exit codes of runc and of Python; agents have others
MOST: Final = 3  # pods whose logs are read: those of one job mostly end alike


def of_silent_pods(api: Api, pods: Sequence[Object]) -> dict[str, str]:
    """By name, why pods ended that left no message, as far as this user may read their logs: of the latest few."""
    found = {}
    ended = sorted(filter(_ended_silently, pods), key=job_facts.created)
    with suppress(KitError):  # a node that does not answer, a pod that is deleted meanwhile, a right that is missing
        for pod in ended[-MOST:]:
            where = pod["metadata"]
            lines = api.lines(where["namespace"], where["name"], job_facts.container_name(pod), tailLines=str(LINES))
            if said := last_words([parse(line, 0).text for line in lines]):
                found[where["name"]] = conditions.before_the_agent(said) or ended_with(_exit_code(pod), said)
    return found


def _ended_silently(pod: Object) -> bool:
    ended = job_facts.container_status(pod).get("state", {}).get("terminated") or {}
    return ended.get("exitCode") in BEFORE_THE_AGENT and not ended.get("message")


def _exit_code(pod: Object) -> int:
    return int(job_facts.container_status(pod)["state"]["terminated"]["exitCode"])
