"""The report: the nodes' assignments, the round, and rank 0's progress."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from kitjob import typed
from kitjob.report import Preparation, Progress, Report
from kittrain.agent.report import backup_reporter
from kittrain.agent.report.publish import Reporter, assignment
from kittrain.agent.report.recovery import RANK_PARTS
from kittrain.agent.report.report_sinks import FileSink, Sink
from kittrain.job.env import NodeEnv, node_env
from kittrain.outcome.failures import BRIEF, Failure
from kittrain.system.heartbeat import NONE_STORED, Phase, Stored
from tests.trainer.agent.report.ranks import SteppedRanks
from tests.trainer.nodes import free_port
from tests.trainer.reports import plain, report_in
from tests.trainer.told import Told


def reporter(folder: Path, index: int, sink: Sink | None = None) -> Reporter:
    node = node_env({"KIT_NODE_INDEX": str(index), "KIT_POD": f"job-{index}", "PET_RDZV_ID": "run-1"})
    sink = sink or FileSink(folder / "report.json")
    return Reporter(node, sink=sink, progress_file=folder / f"progress-{index}.json")


def until(folder: Path, key: str, *, expected: object) -> dict[str, Any]:
    """Wait until a key of the report has this value; returns the report."""
    while True:
        with suppress(FileNotFoundError):
            report: dict[str, Any] = report_in(folder / "report.json")
            if report[key] == expected:
                return report
        time.sleep(0.01)


def connect(port: int, *, host: bool = False) -> dist.TCPStore:
    return dist.TCPStore(
        "127.0.0.1", port, is_master=host, wait_for_workers=False, timeout=timedelta(seconds=30), use_libuv=False
    )


def meet(port: int, prefix: str, order: list[Reporter]) -> list[int]:
    """A round; the reporters' order gives their group ranks."""
    rounds = [0] * len(order)

    def begin(rank: int) -> None:
        rounds[rank] = order[rank].begin(
            dist.PrefixStore(prefix, connect(port)),
            group_rank=rank,
            group_size=len(order),
            ranks=(2 * rank, 2 * rank + 1),
            world=2 * len(order),
        )

    threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(len(order))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rounds


def test_assignments_follow_the_group_rank_and_rounds_only_grow(tmp_path: Path) -> None:
    first, second = reporter(tmp_path, 0), reporter(tmp_path, 1)
    port = free_port()
    store = connect(port, host=True)
    assert meet(port, "a", [first, second]) == [1, 1]
    (tmp_path / "progress-0.json").write_text('{"step": 5}')
    first.stop()
    report = report_in(tmp_path / "report.json")
    assert report["progress"] == plain(Progress(step=5))
    assert report["nodes"]["1"].pop("joined") > 0
    assert report["nodes"]["1"] == {
        "pod": "job-1",
        "host": "localhost",
        "pid": os.getpid(),
        "group_rank": 1,
        "ranks": [2, 3],
        "agent_runs": 0,
        "agent_restarts": 0,
        "restart_cause": "",
    }

    # Node 0 restarts and knows no round; node 1 has group rank 0 now.
    (tmp_path / "progress-1.json").write_text('{"step": 1}')  # from an earlier round with group rank 0
    newcomer = reporter(tmp_path, 0)
    assert meet(port, "b", [second, newcomer]) == [2, 2]
    second.stop()
    report = report_in(tmp_path / "report.json")
    assert (report["run"], report["round"], report["world_size"]) == ("run-1", 2, 4)
    assert report["nodes"]["0"]["ranks"] == [2, 3]
    assert report["progress"] == plain(Progress())
    assert report["updated"].endswith("Z")
    assert report["forming"] is False
    del store


def test_a_node_that_has_taken_a_place_stands_by_no_longer(tmp_path: Path) -> None:
    first, spare = reporter(tmp_path, 0), reporter(tmp_path, 1)
    port = free_port()
    store = connect(port, host=True)
    meet(port, "a", [first])
    first.spares = (1,)
    meet(port, "b", [first, spare])
    first.stop()
    report = report_in(tmp_path / "report.json")
    assert (sorted(report["nodes"]), report.get("spares", [])) == (["0", "1"], [])
    del store


def test_a_warning_of_rank_0_is_reported(tmp_path: Path) -> None:
    leader = reporter(tmp_path, 0)
    port = free_port()
    store = connect(port, host=True)
    meet(port, "a", [leader])
    (tmp_path / "progress-0.json").write_text(json.dumps({"step": 40, "warning": "the loss is nan since step 31"}))
    assert leader.warning == "the loss is nan since step 31"
    leader.stop()
    report = report_in(tmp_path / "report.json")
    assert report["warning"] == "the loss is nan since step 31"
    del store


def test_forming_is_reported_until_the_next_round(tmp_path: Path) -> None:
    leader = reporter(tmp_path, 0)
    port = free_port()
    store = connect(port, host=True)
    meet(port, "a", [leader])
    leader.round_ended("node 1 is lost", failed=True)
    broken = until(tmp_path, "forming", expected=True)
    leader.round_ended("only 1 of the 2 nodes are here", failed=True)  # since it tries again
    assert broken["ended_by"] == until(tmp_path, "forming", expected=True)["ended_by"] == "node 1 is lost"
    meet(port, "b", [leader])
    formed = until(tmp_path, "forming", expected=False)
    assert formed["formed"] > broken["formed"]
    assert not formed["ended_by"]
    leader.round_ended("more nodes are ready", failed=False)
    assert not until(tmp_path, "forming", expected=True)["ended_by"]
    leader.stop()
    del store


def test_the_next_node_tells_that_a_round_has_ended_if_the_leader_does_not(tmp_path: Path) -> None:
    leader, second = reporter(tmp_path, 0), reporter(tmp_path, 1)
    port = free_port()
    store = connect(port, host=True)
    meet(port, "a", [leader, second])
    (tmp_path / "progress-0.json").write_text('{"step": 5}')
    leader.stop()
    second.round_ended("rank 2 failed (it lost its peers)", failed=True)  # as it notices first
    second.round_ended("node 0 is lost: its machine does not answer", failed=True)
    told = until(tmp_path, "forming", expected=True)
    assert (told["ended_by"], told["progress"]["step"]) == ("node 0 is lost: its machine does not answer", 5)
    newcomer = reporter(tmp_path, 0)
    meet(port, "b", [newcomer, second])
    assert not until(tmp_path, "forming", expected=False)["ended_by"]
    newcomer.stop()
    second.stop()
    del store


class Tail:
    """A sink that has the tail of the history, too."""

    interval = 0.01

    def __init__(self) -> None:
        self.report: Report | None = None
        self.text = ""

    def put(self, report: Report, tail: str = "") -> None:
        self.report, self.text = report, tail or self.text

    def last(self) -> Report | None:
        return self.report

    def tail(self) -> str:
        return self.text

    def prepare(self, node: int, note: Preparation | None) -> None:
        raise NotImplementedError


def test_what_another_node_has_written_of_the_history_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_reporter, "SOON", 0.0)
    sink = Tail()
    leader = reporter(tmp_path, 0, sink)
    time.sleep(0.002)  # a writer's id has its process, which is the same here, and the millisecond
    second = reporter(tmp_path, 1, sink)
    for one in (leader, second):
        one.history.open(NodeEnv(run_id="run-1"))
    port = free_port()
    store = connect(port, host=True)
    meet(port, "a", [leader, second])
    while sink.report is None:
        time.sleep(0.01)
    leader._report = None  # it is cut off
    second.round_ended("node 0 is lost", failed=True)
    while "node 0 is lost" not in sink.text:
        time.sleep(0.01)
    meet(port, "b", [leader, second])
    while (found := sink.last()) is None or found.round != 2:
        time.sleep(0.01)
    leader.stop()
    assert sink.text.count("node 0 is lost") == 1
    assert sink.text.count('"kind":"writer"') == 2
    second.stop()
    del store


def test_the_state_of_the_group_and_the_last_recovery_are_reported(tmp_path: Path) -> None:
    leader = reporter(tmp_path, 0)
    port = free_port()
    store = connect(port, host=True)
    leader.recovery.begin("node 1 is lost")
    meet(port, "a", [leader])
    leader.observe(SteppedRanks(), {"busy": {"0": 0.25, "1": 0.5}, "slow": {"1": 1.5}})
    leader.stop()
    report = typed.load(Report, (tmp_path / "report.json").read_bytes())
    assert (report.busy, report.slow) == ({"0": 0.5}, {"1": 1.5})
    assert report.last_recovery
    assert report.last_recovery.cause == "node 1 is lost"
    assert set(report.last_recovery.parts) == {name for name, _ in RANK_PARTS}
    del store


class WaitingRanks(SteppedRanks):
    """Ranks that have not taken a step yet."""

    def reached(self, phase: Phase) -> float:  # noqa: ARG002  as that of the others
        return 0.0


def test_a_node_that_has_rank_0_now_tells_no_recovery_that_another_one_has_told(tmp_path: Path) -> None:
    first, second = reporter(tmp_path, 0), reporter(tmp_path, 1)
    second.history.listen(told := Told())
    port = free_port()
    store = connect(port, host=True)
    for one in (first, second):
        one.recovery.begin("rank 1 failed")
    meet(port, "a", [first, second])
    for one in (first, second):
        one.observe(SteppedRanks())
    second.round_ended("node 0 is lost", failed=True)
    meet(port, "b", [second])
    second.observe(WaitingRanks())
    assert recoveries(told) == []
    second.observe(SteppedRanks())
    assert recoveries(told) == ["node 0 is lost"]
    for one in (first, second):
        one.stop()
    del store


def recoveries(told: Told) -> list[str]:
    return [event.cause for event in told.events if event.what == "recovered"]


def test_failures_are_reported_and_survive_the_node_that_saw_them(tmp_path: Path) -> None:
    def failed(rank: int, error: str = "KeyError: 'x'", exit_code: int = 1) -> Failure:
        return Failure(rank=rank, exit_code=exit_code, error=error, time=100 + rank)

    first, second = reporter(tmp_path, 0), reporter(tmp_path, 1)
    port = free_port()
    store = connect(port, host=True)
    meet(port, "a", [first, second])
    second.failed(failed(3))
    second.failed(failed(2, "RuntimeError: Connection closed by peer"))  # a consequence
    second.failed(failed(0, "hang: rank 0 has been in step for 40 s", exit_code=-9))  # reported by another node
    first.failed(failed(1, "ValueError: no"))
    meet(port, "b", [first, second])
    newcomer = reporter(tmp_path, 1)  # node 1 is lost, and its memory of failures
    meet(port, "c", [first, newcomer])
    first.stop()
    report = report_in(tmp_path / "report.json")
    reported = [(one["node"], one["rank"], one["cause"]) for one in report["failures"] if one["time"] > 0]
    assert sorted(reported) == [(0, 1, "ValueError: no"), (1, 3, "KeyError: 'x'")]
    for number in range(30):
        second.failed(failed(2, f"ValueError: {number}"))
    assert len(second._failures.known) == 10
    del store


def test_restarts_are_reported_with_a_short_cause() -> None:
    entry = assignment(NodeEnv(agent_restarts=2, restart_cause="x" * 5000), 0, (0, 1))
    assert (entry.agent_restarts, len(entry.restart_cause)) == (2, BRIEF)


class ScriptRanks(SteppedRanks):
    """Ranks of a loop of the script's own."""

    def __init__(self, steps: int, *, saved: Stored = NONE_STORED, loaded: int = 0) -> None:
        self.script_steps, self.stored, self.loaded = steps, saved, loaded  # type: ignore[misc]
        self.script_progress = {"step": steps, "steps_per_second": 20.0} if steps else {}  # type: ignore[misc]


def test_steps_that_a_script_takes_again_are_known_after_all_nodes_have_ended(tmp_path: Path) -> None:
    """As after kitctl suspend, which leaves no agent that has seen them."""
    port = free_port()
    store = connect(port, host=True)
    first = reporter(tmp_path, 0)
    meet(port, "a", [first])
    first.observe(ScriptRanks(100))
    saved = time.time_ns()
    first.observe(ScriptRanks(100, saved=Stored(100, time.monotonic(), 1.0, 1)))
    first.observe(ScriptRanks(180, saved=Stored(100, time.monotonic(), 1.0, 1)))
    first.stop()
    second = reporter(tmp_path, 0)
    meet(port, "b", [second])
    second.observe(ScriptRanks(0))
    assert report_in(tmp_path / "report.json")["progress"].get("step") in {None, 180}
    second.observe(ScriptRanks(3, loaded=saved))
    second.stop()
    told = report_in(tmp_path / "report.json")
    assert told["last_recovery"]["cause"] == "all nodes were started again; resumed at step 100: 80 steps lost"
    assert told["progress"]["resumed_from"] == 100
    assert not told.get("warning")
    other = Reporter(
        node_env({"KIT_NODE_INDEX": "0", "KIT_POD": "job-0", "PET_RDZV_ID": "run-2"}),
        sink=FileSink(tmp_path / "report.json"),
        progress_file=tmp_path / "progress-0.json",
    )
    meet(port, "c", [other])
    other.observe(ScriptRanks(3, loaded=saved))
    other.stop()
    assert not report_in(tmp_path / "report.json").get("last_recovery"), "that was another run"
    del store


def test_new_ranks_of_a_script_have_taken_no_step(tmp_path: Path) -> None:
    port = free_port()
    store = connect(port, host=True)
    leader = reporter(tmp_path, 0)
    meet(port, "a", [leader])
    steps = []
    for taken in (154, 0, 2):
        leader.observe(ScriptRanks(taken))
        steps.append(leader.progress.step)
        if taken == 154:
            leader.round_ended("rank 0 failed", failed=True)
            meet(port, "b", [leader])
    assert steps == [154, None, 2]
    leader.stop()
    del store
