"""What only their logs tell of pods: why one ended without an agent, or why its agent is started again and again.

An agent would have left a message, or a report, once it has joined the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kitctl.base.errors import KitError
from kitctl.state.last_words import LINES, ended_with, last_words
from kitctl.state.logs import parse
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import conditions, job_facts, reports

BEFORE_THE_AGENT: Final = frozenset({1, 126, 127, 255})  # exit codes of runc and of Python; agents have others
# What the supervisor of a pod prints.
AGAIN: Final = re.compile(r"^(?:\[agent \d+\]: )?started again in place, restart (\d+): (the agent was killed by .*)$")
OFTEN: Final = 2  # restarts of an agent that has not joined: one may be an accident
JOINS_IN: Final = 10.0  # seconds, for the most part
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


def of_restarted_agents(api: Api, pods: Sequence[Object], status: Object | None, now: float) -> dict[str, str]:
    """By name, how the agents of pods ended that run, and have not joined the others since: of the latest few.

    What starts an agent again in place reports nothing; the pod itself only runs. Without a ConfigMap for reports it is
    not known who has joined.
    """
    if status is None:
        return {}
    joined = reports.report(status)
    formed = joined.formed if joined else 0.0
    began = {pod["metadata"]["name"]: job_facts.started_at(pod) or now for pod in pods if job_facts.is_running(pod)}
    young = {name for name, start in began.items() if start > formed and now > start + JOINS_IN}
    found = {}
    with suppress(KitError):
        for pod in [one for one in sorted(pods, key=job_facts.created) if one["metadata"]["name"] in young][-MOST:]:
            where = pod["metadata"]
            lines = api.lines(where["namespace"], where["name"], job_facts.container_name(pod), tailLines=str(LINES))
            told = [again for line in lines if (again := AGAIN.search(parse(line, 0).text))]
            if told and int(told[-1][1]) >= OFTEN:
                found[where["name"]] = f"{told[-1][2]}; it was started again in place {told[-1][1]} times"
    return found


def _ended_silently(pod: Object) -> bool:
    ended = job_facts.container_status(pod).get("state", {}).get("terminated") or {}
    return ended.get("exitCode") in BEFORE_THE_AGENT and not ended.get("message")


def _exit_code(pod: Object) -> int:
    return int(job_facts.container_status(pod)["state"]["terminated"]["exitCode"])
