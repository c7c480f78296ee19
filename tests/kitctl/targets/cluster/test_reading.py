"""One stream of what pods log and of what was kept of those that are gone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kitctl import logs, names
from kitctl.logs import Line
from kitctl.targets.cluster.keptlogs import KeptLogs
from kitctl.targets.cluster.lives import Read, lost
from kitctl.targets.cluster.reading import Source, follow, lines
from kittrain.node.log_copy import log_copy_path
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key

BEGUN = 1_795_341_600  # 2026-11-22T10:00:00Z
JOB = {"kind": "Job", "metadata": {"name": "run"}, "status": {"startTime": "2026-11-22T10:00:00Z"}}


def at(second: float, text: str) -> str:
    return f"2026-11-22T10:00:{second:012.9f}Z {text}"


def beside(command: Sequence[str]) -> Iterator[bytes]:
    """What runs a command beside the claim; here that is this machine."""
    assert command[0] == "python"
    yield subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True).stdout


class Job:
    """A job's pods on the server, and its claim, a folder."""

    def __init__(self, server: ApiServer, claim: Path) -> None:
        self.server, self.claim = server, claim
        self.looks = 0
        env = [{"name": names.KIT_SPEC, "value": json.dumps({"version": 1, "log_dir": str(claim)})}]
        pod = {"spec": {"containers": [{"env": env}]}}
        self.kept = KeptLogs(None, {**JOB, "spec": {"template": pod}}, lambda _: None)  # type: ignore[arg-type]

    def pod(self, name: str, node: int, second: int, *said: str, running: bool = False) -> None:
        """A pod that has logged these lines, one a second."""
        state: dict[str, Any] = {"startedAt": f"2026-11-22T10:00:{second:02}Z"}
        self.server.put(
            "pods",
            name,
            spec={"containers": []},
            metadata={"labels": {names.ANNOTATION_JOB_INDEX: str(node)}},
            status={
                "containerStatuses": [
                    {"name": names.CONTAINER, "state": {"running" if running else "terminated": state}}
                ]
            },
        )
        self.server.logs[name] = [at(second + more + 0.5, text) for more, text in enumerate(said)]

    def keeps(self, pod: str, node: int, second: int, *said: str) -> None:
        """What its agent has kept of it: each line a moment before it is logged."""
        path = log_copy_path(self.claim, node_index=node, pod=pod, begun=BEGUN + second + 0.25)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(at(second + more + 0.4, text) + "\n" for more, text in enumerate(said)))

    def source(self, ends: int = 1) -> Source:
        """Its logs; it is over at the so manieth look, and its second pod is gone before."""

        def over() -> bool:
            self.looks += 1
            if self.looks == ends:
                self.server.store.objects.pop(Key("pods", "default", "run-1-b"), None)
            return self.looks >= ends

        def kept(_count: int, read: list[Read]) -> Iterator[Line]:
            return self.kept._unread(beside, read)

        pods = partial(self.server.store.items, "pods", "default", "")
        return Source(pods=pods, lost=lambda pods: lost(JOB, pods, None), over=over, kept=kept)


@pytest.fixture
def job(server: ApiServer, tmp_path: Path) -> Job:
    """Node 1 is in its second pod; the first is gone."""
    job = Job(server, tmp_path)
    job.pod("run-0-a", 0, 1, "zero", "two")
    job.pod("run-1-b", 1, 11, "again", "last?")
    job.keeps("run-0-a", 0, 1, "zero", "two")
    job.keeps("run-1-a", 1, 2, "one", "three")
    job.keeps("run-1-b", 1, 11, "again", "last?", "why it failed")
    return job


def test_pods_and_what_was_kept_of_others_are_one_stream_without_doubles(
    job: Job, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(JOB["status"], "failed", 3)  # type: ignore[arg-type]  # two of them are there
    merged = list(logs.merge(lines(kit.target().api, job.source())))
    assert [(line.node, line.text) for line in merged] == [
        *((0, "zero"), (1, "one"), (0, "two"), (1, "three"), (1, "again"), (1, "last?"))
    ]


def test_where_all_pods_are_there_nobody_looks_for_others(job: Job, kit: Kit) -> None:
    assert len(lines(kit.target().api, job.source())) == 2


def test_following_ends_with_what_a_pod_that_went_had_not_told(job: Job, kit: Kit) -> None:
    job.pod("run-1-c", 1, 20, "third life", running=False)
    told = [line.text for batch in follow(kit.target().api, job.source(ends=3)) for line in batch]
    assert sorted(told) == sorted(["zero", "two", "again", "last?", "third life"]), "all pods were read whole"


def test_following_a_pod_that_is_deleted_under_the_reader_ends_with_the_rest_of_it(job: Job, kit: Kit) -> None:
    job.server.store.objects.pop(Key("pods", "default", "run-1-b"))
    job.pod("run-1-b", 1, 11, "again", "last?", running=True)
    told = [line.text for batch in follow(kit.target().api, job.source(ends=3)) for line in batch]
    assert sorted(told[:4]) == ["again", "last?", "two", "zero"]
    assert told[4:] == ["one", "three", "why it failed"]
