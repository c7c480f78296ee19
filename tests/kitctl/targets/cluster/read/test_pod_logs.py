"""Reading the logs of pods, and the log copies of deleted ones."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kitctl.base import names
from kitctl.kinds.indexed_job import INDEX
from kitctl.state import logs
from kitctl.state.logs import Line
from kitctl.targets.cluster.connection import api
from kitctl.targets.cluster.log_copies import LogCopies
from kitctl.targets.cluster.read import pod_logs
from kitctl.targets.cluster.read.agent_runs import ReadLog, count_missing
from kitctl.targets.cluster.read.pod_logs import Source, follow, lines
from kitjob import document, variables
from kitjob.job_keys import JobKeys
from kitjob.run import RunFacts
from kittrain.agent.report.log_copy import log_copy_path
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.objectstore import Key

STARTED = 1_795_341_600  # 2026-11-22T10:00:00Z
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "run"},
    "status": {"startTime": "2026-11-22T10:00:00Z"},
}


def at(second: float, text: str) -> str:
    return f"2026-11-22T10:00:{second:012.9f}Z {text}"


def run(command: Sequence[str]) -> Iterator[bytes]:
    """Run a helper pod's command on this machine."""
    yield subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True).stdout


class Job:
    """A job's pods on the server, and its claim, which is a folder."""

    def __init__(self, server: ApiServer, claim: Path) -> None:
        self.server, self.claim = server, claim
        self.polls = 0
        env = [{"name": variables.KIT_SPEC, "value": document.write(JobKeys(), RunFacts(log_dir=str(claim)))}]
        pod = {"spec": {"containers": [{"env": env}]}}
        self.copies = LogCopies(None, {**JOB, "spec": {"template": pod}}, lambda _: None)  # type: ignore[arg-type]

    def pod(self, name: str, node: int, second: int, *lines: str, running: bool = False) -> None:
        """Create a pod that has logged these lines, one per second."""
        state: dict[str, Any] = {"startedAt": f"2026-11-22T10:00:{second:02}Z"}
        self.server.put(
            "pods",
            name,
            spec={"containers": []},
            metadata={"labels": {INDEX: str(node)}},
            status={
                "containerStatuses": [
                    {"name": names.CONTAINER, "state": {"running" if running else "terminated": state}}
                ]
            },
        )
        self.server.logs[name] = [at(second + more + 0.5, text) for more, text in enumerate(lines)]

    def copy(self, pod: str, node: int, second: int, *lines: str) -> None:
        """Create the agent's log copy of these lines; their times are shortly before the kubelet's."""
        path = log_copy_path(self.claim, node_index=node, pod=pod, started=STARTED + second + 0.25)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(at(second + more + 0.4, text) + "\n" for more, text in enumerate(lines)))

    def source(self, ends: int = 1) -> Source:
        """The job's logs. Poll number ``ends`` reports the job's end; node 1's second pod is deleted before."""

        def ended() -> bool:
            self.polls += 1
            if self.polls == ends:
                self.server.store.objects.pop(Key("pods", "default", "run-1-b"), None)
            return self.polls >= ends

        def copies(_count: int, read: list[ReadLog]) -> Iterator[Line]:
            return self.copies._unread(run, read)

        pods = partial(self.server.store.items, "pods", "default", "")
        return Source(pods=pods, missing=lambda pods: count_missing(JOB, pods, None), ended=ended, copies=copies)


@pytest.fixture
def job(server: ApiServer, tmp_path: Path) -> Job:
    """A job whose node 1 has its second pod; the first one was deleted."""
    job = Job(server, tmp_path)
    job.pod("run-0-a", 0, 1, "zero", "two")
    job.pod("run-1-b", 1, 11, "again", "last?")
    job.copy("run-0-a", 0, 1, "zero", "two")
    job.copy("run-1-a", 1, 2, "one", "three")
    job.copy("run-1-b", 1, 11, "again", "last?", "why it failed")
    return job


def test_pods_and_copies_are_merged_without_duplicates(job: Job, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOB["status"], "failed", 3)  # type: ignore[arg-type]  # two of them exist
    merged = list(logs.merge(lines(kit.target().api, job.source())))
    assert [(line.node, line.text) for line in merged] == [
        *((0, "zero"), (1, "one"), (0, "two"), (1, "three"), (1, "again"), (1, "last?"))
    ]


def test_no_copies_are_read_while_all_pods_exist(job: Job, kit: Kit) -> None:
    assert len(lines(kit.target().api, job.source())) == 2


def test_follow_reads_a_replacement_pod_too(job: Job, kit: Kit) -> None:
    job.pod("run-1-c", 1, 20, "third run", running=False)
    texts = [line.text for batch in follow(kit.target().api, job.source(ends=3)) for line in batch]
    assert sorted(texts) == sorted(["zero", "two", "again", "last?", "third run"]), "all pods were read whole"


def test_follow_reads_the_copy_of_a_pod_that_is_deleted_meanwhile(job: Job, kit: Kit) -> None:
    job.server.store.objects.pop(Key("pods", "default", "run-1-b"))
    job.pod("run-1-b", 1, 11, "again", "last?", running=True)
    texts = [line.text for batch in follow(kit.target().api, job.source(ends=3)) for line in batch]
    assert sorted(texts[:4]) == ["again", "last?", "two", "zero"]
    assert texts[4:] == ["one", "three", "why it failed"]


MANY = [f"line {number}" for number in range(3000)]


@pytest.fixture
def talkative(server: ApiServer, tmp_path: Path) -> Job:
    """A job whose one pod logs many lines, most of them at the same time as others."""
    job = Job(server, tmp_path)
    job.pod("run-0-a", 0, 1)
    server.logs["run-0-a"] = [at(1.5 + (number // 1000) / 1e6, text) for number, text in enumerate(MANY)]
    return job


AWAY = {"kind": "Status", "message": "the server was unable to return a response in time"}


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([{"lost": "halfway"}], marks=pytest.mark.wide),
        pytest.param([{"lost": "halfway"}, {"lost": "before"}, {"lost": "halfway"}], marks=pytest.mark.wide),
        [{"answer": (504, AWAY)}, {"lost": "halfway"}, {"answer": (500, AWAY)}],
    ],
    ids=["cut", "cut twice", "time-outs"],
)
def test_a_followed_log_that_breaks_loses_and_repeats_no_line(
    faults: list[dict[str, Any]], talkative: Job, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "POLL_SECONDS", 0.05)
    for fault in faults:
        talkative.server.plan("GET .*/pods/run-0-a/log", **fault)
    api = kit.target().api
    texts = [line.text for batch in follow(api, talkative.source(ends=60)) for line in batch]
    assert texts == MANY
    assert not [one for one in talkative.server.faults if one.times], "all faults were met"


def test_the_file_that_a_kubelet_has_begun_meanwhile_is_read_too(talkative: Job, kit: Kit) -> None:
    """It sends the old file to its end, and does not notice that there is a newer one."""
    log = talkative.server.logs["run-0-a"]
    log[:] = [line for line in log if line >= at(1.5 + 1e-6, "")]  # of the rotated file none is left
    old = "".join(f"{at(1.5, text)}\n" for text in MANY[:1000])
    talkative.server.plan("GET .*/pods/run-0-a/log", answer=(200, old))
    texts = [line.text for batch in follow(kit.target().api, talkative.source()) for line in batch]
    assert texts == MANY


@pytest.mark.parametrize("sent", [0, 1000])
def test_a_log_that_is_silent_for_long_is_attached_again(
    talkative: Job, kit: Kit, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    monkeypatch.setattr(api, "FOLLOW_SECONDS", 0.5)
    asked_again = threading.Event()
    begin = "".join(f"{at(1.5, text)}\n" for text in MANY[:sent])
    talkative.server.plan("GET .*/pods/run-0-a/log", answer=(200, begin), open_until=asked_again)
    talkative.server.plan("GET .*/pods/run-0-a/log", before=asked_again.set)
    texts = [line.text for batch in follow(kit.target().api, talkative.source()) for line in batch]
    assert texts == MANY


def test_an_error_of_the_kubelet_is_no_line_of_the_log(talkative: Job, kit: Kit) -> None:
    begin = "".join(f"{at(1.5, text)}\n" for text in MANY[:1000])
    error = "failed to create fsnotify watcher: too many open files"
    talkative.server.plan("GET .*/pods/run-0-a/log", answer=(200, begin + error))
    texts = [line.text for batch in follow(kit.target().api, talkative.source()) for line in batch]
    assert texts == MANY


def test_follow_waits_for_the_last_lines_of_a_job_that_has_ended(job: Job, kit: Kit) -> None:
    """The line that says why it failed is the last one, and a kubelet may be slow."""
    sent = threading.Event()
    job.server.plan("GET .*/pods/run-0-a/log", before=lambda: sent.wait(60))
    texts, empty = [], 0
    try:
        for batch in follow(kit.target().api, job.source(ends=1)):
            texts += [line.text for line in batch]
            empty += not batch
            if empty == 5:
                sent.set()
    finally:
        sent.set()
    assert empty >= 5
    assert texts[-2:] == ["zero", "two"]


def reading() -> list[threading.Thread]:
    """The readers that have not ended."""
    return [one for one in threading.enumerate() if isinstance(one, pod_logs._Reader)]


def end(readers: Sequence[threading.Thread]) -> bool:
    """Wait for readers; whether all have ended."""
    for one in readers:
        one.join(timeout=60)
    return not any(one.is_alive() for one in readers)


def test_who_stops_following_leaves_no_reader(job: Job, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, by `break`: one would read on, of a job that runs for weeks."""
    monkeypatch.setattr(pod_logs, "POLL_SECONDS", 0.05)
    job.pod("run-2-a", 2, 20, "it runs", running=True)
    before = reading()
    batches = follow(kit.target().api, job.source(ends=10_000))
    while not any(line.text == "it runs" for line in next(batches)):
        pass
    readers = [one for one in reading() if one not in before]
    assert readers
    batches.close()  # type: ignore[attr-defined] # it is a generator
    assert end(readers)


def test_nor_one_that_waits_for_room(talkative: Job, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "MOST_WAITING", 1)
    monkeypatch.setattr(pod_logs, "POLL_SECONDS", 0.05)
    before = reading()
    batches = follow(kit.target().api, talkative.source(ends=10_000))
    next(batches)
    readers = [one for one in reading() if one not in before]
    batches.close()  # type: ignore[attr-defined]
    assert end(readers)


def test_an_error_that_nobody_expects_is_raised_where_the_log_is_followed(
    talkative: Job, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a pod's lines would be missing without a word."""
    target = kit.target().api

    def fails(*_args: object, **_kwargs: object) -> Iterator[list[str]]:
        raise ZeroDivisionError

    monkeypatch.setattr(target, "arriving_lines", fails)
    with pytest.raises(ZeroDivisionError):
        list(follow(target, talkative.source(ends=10_000)))
