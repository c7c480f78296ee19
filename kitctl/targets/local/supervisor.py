"""The supervisor of one job: looks, asks ``reconcile`` what to do, does it. ``python -m ...supervisor JOB_FOLDER``.

It keeps in memory only what the folder says as well, so it may be killed at any time and another may go on.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from kitctl.targets.local import launch
from kitctl.targets.local.folder import JobFolder, NodeFolder, hold, state_home
from kitctl.targets.local.reconcile import Action, Finish, Observed, Start, Stop, outcome, reconcile
from kitctl.targets.local.records import Runtime
from kitctl.targets.local.starting import Starter

POLL_SECONDS = 0.1
QUICK_SECONDS = 20.0  # a node that lived longer than this was not lost "in a row"
PORTS = range(15000, 30000)  # below Linux' ephemeral range: no outgoing connection takes it between two starts


def main(argv: list[str]) -> int:
    """Supervise one job until it has ended, or until it is suspended and nothing runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for who follows, not for the job
    folder = JobFolder(Path(argv[0]))
    with hold(folder.lock) as lock:
        if lock is None:
            return 0  # another one is at work
        with closing(Starter(folder.job, say)) as starter:
            Supervisor(folder, starter).run()
    return 0


def spawn(folder: JobFolder) -> None:
    """Start a supervisor that outlives the caller and its terminal."""
    with (folder.path / "supervisor.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


class Supervisor:
    """One job's supervisor."""

    def __init__(self, folder: JobFolder, starter: Starter) -> None:
        self.folder = folder
        self.job = folder.job
        self.starter = starter
        self.stopping: dict[tuple[int, int], float] = {}  # (node, attempt) -> when it was asked to stop
        self.fates: dict[tuple[int, int], float | None] = {}  # of attempts that others followed: they never change

    def run(self) -> None:
        """The loop: look, decide, act."""
        while not self.folder.end:
            wanted = self.folder.wanted
            seen = self.observe(max(wanted.nodes, self.job.spec.max_nodes))
            actions = reconcile(self.job.spec, wanted, seen, time.time(), self.job.created)
            if self.folder.wanted != wanted:
                continue  # decided on what is no longer wanted
            for action in actions:
                if not self.act(action):
                    break  # no node runs, or ends the job, before those below it have been started
            if wanted.suspended and not actions and not any(node.alive for node in seen):
                return
            time.sleep(POLL_SECONDS)

    def observe(self, count: int) -> list[Observed]:
        """What is true of every node now."""
        return [self._observe(self.folder.node(index)) for index in range(count)]

    def act(self, action: Action) -> bool:
        """Do one thing; False if it cannot be done yet."""
        match action:
            case Start(index):
                return self._start(self.folder.node(index))
            case Stop(index, hard):
                self._stop(self.folder.node(index), hard=hard)
            case Finish(end):
                self.folder.write(end)
                say(f"{end.phase}" + (f": {end.failure.reason}" if end.failure else ""))
        return True

    def _observe(self, node: NodeFolder) -> Observed:
        attempts = node.attempts
        alive = node.alive()  # before its end is read: a node that ends in between is seen as alive once more
        fates = [self._fate(node, attempt, last=attempts) for attempt in range(1, attempts + (not alive))]
        lives = [life for life in fates if life is not None]
        quick = next((i for i, life in enumerate(reversed(fates)) if life is None or life > QUICK_SECONDS), len(fates))
        return Observed(
            index=node.index,
            alive=alive,
            attempts=attempts,
            losses=len(lives),
            losses_in_a_row=quick,
            started=node.started(attempts),
            exited=node.exited(attempts),
            termination=node.termination(attempts),
            stopping_since=self.stopping.get((node.index, attempts)),
        )

    def _fate(self, node: NodeFolder, attempt: int, *, last: int) -> float | None:
        """As ``_lost_after``, but read once for each attempt that is history."""
        if attempt == last:
            return _lost_after(node, attempt)
        key = (node.index, attempt)
        if key not in self.fates:
            self.fates[key] = _lost_after(node, attempt)
        return self.fates[key]

    def _start(self, node: NodeFolder) -> bool:
        attempt = node.attempts + 1
        this = launch.Launch(
            folder=self.folder, job=self.job, index=node.index, attempt=attempt, port=self._port(), state=state_home()
        )
        env = launch.environment(this, os.environ)
        if not self.starter.ready(env):
            return False  # asked again in the next round
        if attempt > 1:
            self._end_remains(node, attempt - 1)
        node.path.mkdir(parents=True, exist_ok=True)
        node.log(attempt).touch()  # from here on the attempt counts, whatever happens to us
        self.starter.start(node, attempt, restarts=self.folder.wanted.restarts, env=env)
        say(f"node {node.index}: started, attempt {attempt}")
        return True

    def _stop(self, node: NodeFolder, *, hard: bool) -> None:
        attempt = node.attempts
        started = node.started(attempt)
        if started is None:
            return  # its shim is about to write it; asked again in the next round
        self.stopping.setdefault((node.index, attempt), time.time())
        say(f"node {node.index}: {'SIGKILL: its grace period is over' if hard else 'SIGTERM'}")
        with suppress(ProcessLookupError):
            if hard:
                os.killpg(started.pid, signal.SIGKILL)
            else:
                os.kill(started.pid, signal.SIGTERM)

    def _end_remains(self, node: NodeFolder, attempt: int) -> None:
        """If a shim was killed its agent may live on, unkept: end it before another takes its place."""
        started = node.started(attempt)
        if started and node.exited(attempt) is None:
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(started.pid) == started.pid:  # still that session, not a reused process id
                    os.killpg(started.pid, signal.SIGKILL)

    def _port(self) -> int:
        """The rendezvous port: as long as a node lives it must stay, otherwise any free one will do."""
        runtime = self.folder.runtime
        if runtime and (_free(runtime.port) or any(node.alive() for node in self.folder.nodes())):
            return runtime.port
        port = next(port for port in random.sample(PORTS, len(PORTS)) if _free(port))
        self.folder.write(Runtime(port=port))
        return port


def say(text: str) -> None:
    """One line into supervisor.log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
    sys.stderr.flush()


def _lost_after(node: NodeFolder, attempt: int) -> float | None:
    """How many seconds an attempt lived that was lost; None if it was not lost."""
    started, exited = node.started(attempt), node.exited(attempt)
    if outcome(exited) != "lost":
        return None
    return exited.time - started.time if started and exited else 0.0


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((launch.LOOPBACK, port))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
