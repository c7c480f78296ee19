"""The supervisor and its shims, with real processes and signals; the agent is a shell script."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kitctl.base.errors import ConflictError, NotFound, UsageError
from kitctl.spec.job_spec import JobSpec
from kitctl.state import phase as state
from kitctl.state.why.explain import explain
from kitctl.targets.local import supervisor
from kitctl.targets.local.folder import JobFolder, NodeFolder, create
from kitctl.targets.local.local_target import LocalTarget
from kitctl.targets.local.reconcile import STARTS
from kitctl.targets.local.records import Desired, SubmittedJob
from kitjob.sections import Policy
from tests.trainer.mounts import tmpfs

WAIT_SECONDS = 120.0
SLEEP = "trap 'exit 75' TERM; echo ready; sleep 60 & wait $!"  # an agent that drains


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalTarget]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    target = LocalTarget.of_user()
    yield target
    for facts in target.jobs(None):
        target.delete(facts.namespace, facts.name, snapshots=True, outputs=True)


def begin(target: LocalTarget, script: str, *, name: str = "job", spec: JobSpec | None = None) -> JobFolder:
    """A supervised job whose agents run ``script``; $KIT_NODE_INDEX is the node."""
    spec = spec or JobSpec(name=name, nodes=2)
    agent = target.state / f"{spec.name}.sh"
    agent.parent.mkdir(parents=True, exist_ok=True)
    no_server = 'case "$*" in *kittrain.agent.forkserver*) exit 1;; esac'
    agent.write_text(f"#!/bin/sh\n{no_server}\n{script}\n")
    agent.chmod(0o755)
    job = SubmittedJob(
        spec=spec, run="run", created=time.time(), folder=str(target.state), python=str(agent), version="0"
    )
    folder = create(target.state / "jobs" / "default" / spec.name, job, Desired(nodes=spec.max_nodes))
    supervisor.spawn(folder)
    return JobFolder(target.state / "jobs" / "default" / spec.name)


def eventually(check: Callable[[], object], why: str = "the condition never held") -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not check():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def up(folder: JobFolder, *indexes: int) -> bool:
    nodes = [folder.node(index) for index in indexes]
    return all(node.alive() and node.started(node.attempts) and is_ready(node) for node in nodes)


def is_ready(node: NodeFolder) -> bool:
    """Whether the script has installed its signal handlers."""
    return "ready" in node.log(node.attempts).read_text()


def agent_pid(folder: JobFolder, index: int) -> int:
    node = folder.node(index)
    started = node.started(node.attempts)
    assert started is not None
    return started.pid


def supervisors(folder: JobFolder) -> Iterator[int]:
    """The process ids of the job's supervisors, which kitctl itself does not record."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            parts = path.read_bytes().split(b"\0")
            if str(folder.path).encode() in parts and b"kitctl.targets.local.supervisor" in parts:
                yield int(path.parent.name)


def _have_ended(folder: JobFolder, pids: set[int]) -> bool:
    return not pids & {*supervisors(folder)}


def test_the_supervisor_of_a_job_that_is_replaced_leaves_the_new_one_alone(target: LocalTarget) -> None:
    """Its last look may come when another job has the name: that one would have two, and another job's settings."""
    former: set[int] = set()
    for number in range(7):
        folder = begin(target, f"echo job {number}; {SLEEP}")
        eventually(partial(_have_ended, folder, former), "it goes on with another job")
        eventually(partial(up, folder, 0, 1), "it does not start")
        former = {*supervisors(folder)}
        assert len(former) == 1
        assert [node.attempts for node in folder.nodes()] == [1, 1]
        assert all(f"job {number}\n" in node.log(1).read_text() for node in folder.nodes())
        target.delete("default", "job", snapshots=False, outputs=False)


def test_a_job_whose_nodes_all_succeed_has_succeeded(target: LocalTarget) -> None:
    folder = begin(target, "exit 0")
    eventually(lambda: folder.result)
    assert state.derive(target.job("default", "job")).phase == "Succeeded"


def test_a_node_killed_by_sigkill_is_started_again(target: LocalTarget) -> None:
    folder = begin(target, SLEEP)
    eventually(lambda: up(folder, 0, 1))
    os.killpg(agent_pid(folder, 1), signal.SIGKILL)
    eventually(lambda: folder.node(1).attempts == 2 and up(folder, 0, 1))
    assert folder.node(0).attempts == 1, "the other node is not restarted"


def test_commands_that_follow_at_once_start_no_other_supervisor(target: LocalTarget) -> None:
    folder = begin(target, SLEEP)
    assert folder.supervised(), "before it has started Python"
    target.job("default", "job")
    supervisor.spawn(folder)
    assert len(list(supervisors(folder))) == 1
    eventually(lambda: up(folder, 0, 1))
    eventually(lambda: len(list(supervisors(folder))) == 1)  # a child that it has just forked looks like it


def test_nodes_outlive_a_killed_supervisor_and_the_next_command_starts_another(target: LocalTarget) -> None:
    folder = begin(target, SLEEP)
    eventually(lambda: up(folder, 0, 1))
    pids = agent_pid(folder, 0), agent_pid(folder, 1)
    os.kill(next(supervisors(folder)), signal.SIGKILL)
    eventually(lambda: not folder.supervised())
    os.killpg(pids[1], signal.SIGKILL)
    eventually(lambda: not folder.node(1).alive())
    target.job("default", "job")
    eventually(lambda: folder.node(1).attempts == 2 and up(folder, 0, 1))
    assert agent_pid(folder, 0) == pids[0], "node 0 keeps running"


def runs(folder: JobFolder, attempt: int) -> bool:
    return up(folder, 0, 1) and folder.node(0).attempts == folder.node(1).attempts == attempt


def kill_supervisor(folder: JobFolder) -> None:
    os.kill(next(supervisors(folder)), signal.SIGKILL)
    eventually(lambda: not folder.supervised())


def test_a_list_recovers_a_job_whose_supervisor_was_killed_and_says_so_once(target: LocalTarget) -> None:
    """A list that only reads would show "Recovering" for ever."""
    folder = begin(target, SLEEP)
    eventually(lambda: up(folder, 0, 1))
    kill_supervisor(folder)
    os.killpg(agent_pid(folder, 1), signal.SIGKILL)
    eventually(lambda: not folder.node(1).alive())
    told: list[str] = []
    shown = LocalTarget.of_user(told.append)
    shown.jobs(None)
    eventually(lambda: folder.node(1).attempts == 2 and up(folder, 0, 1))
    shown.jobs(None)
    [line] = told
    assert line.startswith("warning: job: its supervisor was killed")
    assert "node 1: started, attempt 1" in line


@pytest.mark.wide
def test_a_job_whose_supervisor_and_nodes_were_killed_can_be_restarted_and_deleted(target: LocalTarget) -> None:
    folder = begin(target, SLEEP)
    for attempt, act in enumerate((target.restart, target.cancel), start=1):
        eventually(partial(runs, folder, attempt))
        kill_supervisor(folder)
        for index in (0, 1):
            os.killpg(agent_pid(folder, index), signal.SIGKILL)
        act("default", "job")
    assert state.derive(target.job("default", "job")).phase == "Cancelled"
    target.delete("default", "job", snapshots=False, outputs=False)
    assert not list((target.state / "jobs" / "default").iterdir())


def test_a_job_that_ends_without_a_supervisor_has_its_result_with_the_next_command(target: LocalTarget) -> None:
    folder = begin(target, "echo ready; while ! [ -e end ]; do sleep 0.1; done")
    eventually(lambda: up(folder, 0, 1))
    kill_supervisor(folder)
    (target.state / "end").touch()
    eventually(lambda: not folder.node(0).alive() and not folder.node(1).alive())
    target.lines("default", "job")
    eventually(lambda: folder.result)
    assert state.derive(target.job("default", "job")).phase == "Succeeded"


def test_supervisors_that_end_as_they_should_are_no_warning(target: LocalTarget) -> None:
    folder, told = begin(target, SLEEP), list[str]()
    shown = LocalTarget.of_user(told.append)
    eventually(lambda: up(folder, 0, 1))
    shown.suspend("default", "job")
    eventually(lambda: not folder.supervised())
    shown.resume("default", "job")
    eventually(lambda: up(folder, 0, 1) and folder.node(0).attempts == 2)
    shown.cancel("default", "job")
    shown.restart("default", "job")
    eventually(lambda: up(folder, 0, 1) and folder.node(0).attempts == 3)
    assert not told


def test_an_agent_whose_shim_was_killed_does_not_run_beside_its_replacement(target: LocalTarget) -> None:
    folder = begin(target, SLEEP)
    eventually(lambda: up(folder, 0, 1))
    orphan = agent_pid(folder, 1)
    shim = int(Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shim, signal.SIGKILL)
    eventually(lambda: folder.node(1).attempts == 2 and up(folder, 1))
    eventually(lambda: not Path(f"/proc/{orphan}").exists() or "Z" in Path(f"/proc/{orphan}/stat").read_text().split())


def test_a_fatal_node_fails_the_job_and_the_reason_is_kept(target: LocalTarget) -> None:
    message = '{"outcome":"fatal","reason":"rank 1 failed (ValueError: no)","rank":1,"node":1,"time":5.0}'
    folder = begin(
        target,
        f"""[ $KIT_NODE_INDEX = 0 ] && {{ {SLEEP}; }}
        echo '{message}' > "$KIT_TERMINATION_LOG"; exit 78""",
    )
    eventually(lambda: folder.result)
    job = state.derive(target.job("default", "job"))
    assert (job.phase, job.reason) == ("Failed", "node 1: rank 1 failed (ValueError: no)")
    assert [node.state for node in job.nodes] == ["Stopped", "Failed"]


def test_suspend_drains_all_and_resume_starts_them_again(target: LocalTarget) -> None:
    folder = begin(target, SLEEP)
    eventually(lambda: up(folder, 0, 1))
    target.suspend("default", "job")
    assert state.derive(target.job("default", "job")).phase == "Suspended"
    assert [folder.node(i).exited(1).code for i in (0, 1)] == [75, 75]  # type: ignore[union-attr]
    eventually(lambda: not folder.supervised(), "there is nothing left to supervise")
    target.resume("default", "job")
    eventually(lambda: up(folder, 0, 1) and folder.node(0).attempts == 2)


def test_scale_changes_the_nodes_of_an_elastic_job_only(target: LocalTarget) -> None:
    folder = begin(target, SLEEP, spec=JobSpec(name="elastic", nodes="1:3"))
    eventually(lambda: up(folder, 0, 1, 2))
    target.scale("default", "elastic", 1)
    eventually(lambda: not folder.node(1).alive() and not folder.node(2).alive())
    target.scale("default", "elastic", 2)
    eventually(lambda: up(folder, 0, 1))
    with pytest.raises(UsageError, match="1 to 3 nodes"):
        target.scale("default", "elastic", 4)
    begin(target, SLEEP, name="fixed")
    with pytest.raises(UsageError, match="exactly 2 nodes"):
        target.scale("default", "fixed", 1)


def test_restart_replaces_every_node_of_a_running_job(target: LocalTarget) -> None:
    folder = begin(target, SLEEP)
    eventually(lambda: up(folder, 0, 1))
    target.restart("default", "job")
    eventually(lambda: up(folder, 0, 1) and [folder.node(i).attempts for i in (0, 1)] == [2, 2])


@pytest.mark.wide
def test_restart_starts_a_failed_job_again_but_not_one_that_succeeded(target: LocalTarget) -> None:
    folder = begin(target, 'if [ -e "${KIT_TERMINATION_LOG%/nodes/*}/fixed" ]; then exit 0; else exit 78; fi')
    eventually(lambda: folder.result)
    Path(f"{folder.path}/fixed").touch()
    target.restart("default", "job")
    eventually(lambda: state.derive(target.job("default", "job")).phase == "Succeeded")
    with pytest.raises(ConflictError, match="has succeeded"):
        target.restart("default", "job")


def test_cancel_waits_for_the_end_and_a_node_that_ignores_sigterm_is_killed(target: LocalTarget) -> None:
    spec = JobSpec(name="stubborn", nodes=1, policy=Policy(grace_period="1s"))
    folder = begin(target, "trap '' TERM; echo ready; while :; do sleep 0.1; done", spec=spec)
    eventually(lambda: up(folder, 0))
    target.cancel("default", "stubborn")
    job = state.derive(target.job("default", "stubborn"))
    assert job.phase == "Cancelled"
    exited = folder.node(0).exited(1)
    assert exited is not None
    assert exited.signal == signal.SIGKILL
    with pytest.raises(ConflictError, match="has already ended"):
        target.suspend("default", "stubborn")


def test_delete_leaves_nothing_but_the_snapshots(target: LocalTarget) -> None:
    folder = begin(target, 'mkdir -p "$KIT_SNAPSHOT_DIR" && touch "$KIT_SNAPSHOT_DIR/kept"; ' + SLEEP)
    kept = target.state / "snapshots" / "default" / "job" / "kept"
    eventually(lambda: kept.exists() and up(folder, 0))
    pid = agent_pid(folder, 0)
    target.delete("default", "job", snapshots=False, outputs=False)
    assert not list((target.state / "jobs" / "default").iterdir())
    assert not Path(f"/proc/{pid}").exists()
    assert kept.exists()
    with pytest.raises(NotFound):
        target.job("default", "job")


def test_two_jobs_have_different_ports(target: LocalTarget) -> None:
    one, two = begin(target, SLEEP, name="one"), begin(target, SLEEP, name="two")
    eventually(lambda: up(one, 0, 1) and up(two, 0, 1))
    assert one.runtime != two.runtime


def test_modules_in_the_current_folder_hide_none_of_pythons(
    target: LocalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("random", "socket"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('hidden')\n")
    monkeypatch.chdir(tmp_path)
    folder = begin(target, SLEEP)
    eventually(lambda: up(folder, 0, 1))
    assert target.job("default", "job").halted == ""


def test_a_supervisor_that_cannot_start_is_told_until_one_runs(
    target: LocalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise ImportError('hidden')\n")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        folder = begin(target, SLEEP)
        eventually(lambda: target.job("default", "job").halted)
        facts = target.job("default", "job")
        assert facts.halted == f"its supervisor has ended: ImportError: hidden; see {folder.supervisor_log}"
        assert (state.derive(facts).phase, state.derive(facts).reason) == ("Pending", facts.halted)
    eventually(lambda: not folder.supervised())
    target.job("default", "job")  # starts the next one
    eventually(lambda: up(folder, 0, 1))
    assert target.job("default", "job").halted == ""


@pytest.mark.needs_root
def test_a_full_disk_is_told_and_waited_for_and_its_job_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tmpfs(tmp_path / "state", size="1m") as state_folder:
        monkeypatch.setenv("XDG_STATE_HOME", str(state_folder))
        target = LocalTarget.of_user()
        folder = begin(target, SLEEP)
        eventually(lambda: up(folder, 0, 1))
        filler = state_folder / "filler"
        fill(filler)
        os.killpg(agent_pid(folder, 1), signal.SIGKILL)
        eventually(lambda: not folder.node(1).alive())
        job = state.derive(target.job("default", "job"))
        assert job.reason == f"no room is left on the disk of {target.state}"
        assert explain(job, time.time()).fix.startswith("make room there")
        eventually(lambda: "waits for room" in folder.supervisor_lines)
        assert folder.node(1).attempts == 1
        assert len(list(supervisors(folder))) == 1, "it waits, and has not ended"
        filler.unlink()
        eventually(lambda: up(folder, 0, 1) and folder.node(1).attempts == 2)
        assert state.derive(target.job("default", "job")).reason == ""
        fill(filler)
        target.cancel("default", "job")
        assert not any(folder.node(index).alive() for index in (0, 1))
        target.delete("default", "job", snapshots=False, outputs=True)
        assert not list((target.state / "jobs" / "default").iterdir())
        eventually(lambda: not list(supervisors(folder)))


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_an_agent_that_cannot_start_is_told_by_the_end_of_its_log(target: LocalTarget) -> None:
    folder = begin(target, "echo Traceback; echo 'ImportError: no ssl'; exit 1")
    eventually(lambda: folder.result)
    job = state.derive(target.job("default", "job"))
    assert job.phase == "Failed"
    assert job.restarts <= 2 * STARTS
    assert explain(job, time.time()).cause == "the agent cannot run: ImportError: no ssl"


CLOCK = """
import pathlib, time
shift, clock = pathlib.Path(__file__).with_name("shift"), time.time
time.time = lambda: clock() + (float(shift.read_text() or 0) if shift.exists() else 0.0)
"""  # what the supervisor sees of a clock that somebody sets


@pytest.fixture
def set_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], object]:
    """Sets the supervisors' clock, by seconds."""
    folder = tmp_path / "clock"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return lambda seconds: (folder / "shift").write_text(f"{seconds}")


def test_a_clock_that_is_set_ends_no_job_and_delays_no_start(
    target: LocalTarget, set_clock: Callable[[float], object]
) -> None:
    folder = begin(target, SLEEP, spec=JobSpec(name="job", nodes=2, policy=Policy(deadline="10h")))
    eventually(lambda: up(folder, 0, 1))
    for attempt, seconds in enumerate((86400.0, -86400.0), start=2):
        set_clock(seconds)
        os.killpg(agent_pid(folder, 1), signal.SIGKILL)
        eventually(partial(_up_again, folder, attempt))
    assert not folder.result


def _up_again(folder: JobFolder, attempt: int) -> bool:
    return folder.node(1).attempts == attempt and up(folder, 1)


def test_a_clock_that_is_set_while_nodes_drain_does_not_end_their_grace_period(
    target: LocalTarget, set_clock: Callable[[float], object]
) -> None:
    script = (
        "trap 'echo draining; while ! [ -e go ]; do sleep 0.05; done; exit 75' TERM; echo ready; sleep 60 & wait $!"
    )
    folder = begin(target, script, spec=JobSpec(name="job", nodes=1))
    eventually(lambda: up(folder, 0))
    folder.write(Desired(nodes=1, suspended=True))
    eventually(lambda: "draining" in folder.node(0).log(1).read_text())
    set_clock(86400.0)
    time.sleep(5 * supervisor.POLL_SECONDS)  # it looks at the clock some times
    (target.state / "go").touch()
    eventually(lambda: not folder.node(0).alive())
    exited = folder.node(0).exited(1)
    assert exited
    assert exited.code == 75


@pytest.mark.wide
def test_a_restart_begins_to_count_losses_anew(target: LocalTarget) -> None:
    spec = JobSpec(name="job", policy=Policy(backoff_limit=1))
    folder = begin(target, 'test -e "$0.mended" && exit 0; kill -9 $$', spec=spec)
    eventually(lambda: folder.result)
    assert target.job("default", "job").result == "Failed"
    (target.state / "job.sh.mended").touch()
    target.restart("default", "job")
    eventually(lambda: folder.result)
    assert target.job("default", "job").result == "Succeeded"
