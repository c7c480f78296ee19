"""Why pods ended that left no message, from the end of their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kitctl.base import names
from kitctl.targets.cluster.read import job_facts
from kitctl.targets.cluster.read.last_lines import of_restarted_agents, of_silent_pods
from kitjob import typed
from kitjob.names import REPORT_KEY
from kitjob.report import Report

if TYPE_CHECKING:
    from tests.kitctl.targets.cluster.apiserver import ApiServer
    from tests.kitctl.targets.cluster.clients import Kit

NO_ENCODINGS = (
    "Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding",
    "ModuleNotFoundError: No module named 'encodings'",
    "",
    "Current thread 0x00007f5c (most recent call first):",
    "  <no Python frame>",
)


@pytest.mark.parametrize(
    ("ended", "log", "told"),
    [
        ({"exitCode": 1}, NO_ENCODINGS, "its agent ended with exit code 1: ModuleNotFoundError: No module named 'enc"),
        ({"exitCode": 1}, ["No module named kittrain"], "the image has no kittrain (leave out --trainer image"),
        ({"exitCode": 255}, ["exec /bin/python: exec format error"], "the image is for processors of another kind"),
        ({"exitCode": 1}, [], ""),
        ({"exitCode": 78}, ["ImportError: x"], ""),
        ({"exitCode": 1, "message": "{}"}, ["ImportError: x"], ""),
    ],
    ids=["python's own error", "no trainer", "another processor", "no log", "an agent's code", "a message"],
)
def test_the_last_error_of_its_log(
    server: ApiServer, kit: Kit, ended: dict[str, Any], log: list[str], told: str
) -> None:
    server.put(
        "pods",
        "run-0-a",
        spec={"containers": [{"name": names.CONTAINER}]},
        metadata={"namespace": "default", "creationTimestamp": "2026-11-22T10:00:00Z"},
        status={"containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": ended}}]},
    )
    server.logs["run-0-a"] = [f"2026-11-22T10:00:0{second}.000000000Z {text}" for second, text in enumerate(log)]
    found = of_silent_pods(kit.target().api, server.store.items("pods", "default", ""))
    assert found.get("run-0-a", "").startswith(told)
    assert bool(found) == bool(told)


def test_an_agent_that_is_started_again_and_again_before_it_joins_is_told_with_why(server: ApiServer, kit: Kit) -> None:
    server.put(
        "pods",
        "run-0-a",
        spec={"containers": [{"name": names.CONTAINER}]},
        metadata={"namespace": "default", "creationTimestamp": "2026-01-01T00:01:40Z"},
        status={
            "containerStatuses": [
                {"name": names.CONTAINER, "state": {"running": {"startedAt": "2026-01-01T00:01:40Z"}}}
            ]
        },
    )
    killed = "the agent was killed by SIGKILL: out of memory: the limit is 200 MiB"
    lines = [f"[agent 0]: started again in place, restart {number}: {killed}" for number in (1, 2, 3)]

    start = job_facts.unix_seconds("2026-01-01T00:01:40Z")

    def told(count: int, seconds: float = 20.0, formed: float = -100.0, *, reports: bool = True) -> dict[str, str]:
        server.logs["run-0-a"] = [
            f"2026-01-01T00:01:4{number}.000000000Z {text}" for number, text in enumerate(lines[:count])
        ]
        pods = server.store.items("pods", "default", "")
        status = {"data": {REPORT_KEY: typed.dump(Report(formed=start + formed)).decode()}} if reports else None
        return of_restarted_agents(kit.target().api, pods, status, start + seconds)

    assert told(3) == {"run-0-a": f"{killed}; it was started again in place 3 times"}
    assert told(1) == {}, "once may be an accident"
    server.requests.clear()
    assert told(3, seconds=5.0) == told(3, formed=10.0) == {}, "it starts; or it has joined"
    assert told(3, reports=False) == {}, "it is not known whether it has"
    assert not [one for one in server.requests if one.path.endswith("/log")]
