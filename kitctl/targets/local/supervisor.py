"""The supervisor of one job: observes, asks ``reconcile`` what to do, acts. ``python -m … JOB_FOLDER LOCK``.

All of its state is in the folder as well, so it may be killed at any time and another one continues.

Why: decision 5.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from typing import IO

from kitctl.targets.local import disk, launch, memory_folders
from kitctl.targets.local.disk import NO_ROOM
from kitctl.targets.local.folder import JobFolder, NodeFolder, state_home
from kitctl.targets.local.locks import acquire_lock
from kitctl.targets.local.reconcile import (
    STARTS,
    Action,
    Finish,
    Observed,
    Start,
    Stop,
    failed_to_start,
    outcome,
    reconcile,
)
from kitctl.targets.local.records import Runtime, Started
from kitctl.targets.local.starting import Starter
from kitctl.targets.local.supervisor_log import ENDED, STARTED, STARTING, stamped
from kitjob import variables

POLL_SECONDS = 0.1
SHORT_LIVED_SECONDS = 20.0  # a loss after a longer life is not a consecutive one
PORTS = range(15000, 30000)  # below Linux' ephemeral range: no outgoing connection takes one between two starts


def main(argv: list[str]) -> int:
    """Supervise one job until it has ended, or until it is suspended and nothing runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal ends the command, not the job
    folder = JobFolder(Path(argv[0]))
    with os.fdopen(int(argv[1])) as lock, closing(Starter(folder.job, log)) as starter:
        Supervisor(folder, starter, lock).run()
    return 0


def spawn(folder: JobFolder) -> None:
    """Start a supervisor that outlives the caller and its terminal, unless there is one.

    It inherits the lock, so that no other is started while this one imports its modules.
    """
    with acquire_lock(folder.lock) as lock, folder.supervisor_log.open("ab") as log:
        if lock:
            log.write(stamped(STARTING).encode())
            log.flush()
            # -P: a module in the current folder, such as random.py, must not hide Python's own
            started = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(folder.path), str(lock.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
            # It outlives this process; one that lives longer, such as a notebook, keeps no zombie.
            threading.Thread(target=started.wait, daemon=True).start()


class Supervisor:
    """One job's supervisor.

    Args:
        folder: of the job.
        starter: of its nodes.
        lock: on the job's folder, which this process holds.
    """

    def __init__(self, folder: JobFolder, starter: Starter, lock: IO[str]) -> None:
        self.folder = folder
        self._lock = lock
        self.job = folder.job
        self.starter = starter
        self.stopping: dict[tuple[int, int], float] = {}  # (node, attempt) -> when it was sent SIGTERM
        self.lifetimes: dict[tuple[int, int], float | None] = {}  # of earlier attempts, which never change
        self._clock_offset = time.time() - time.monotonic()

    @property
    def now(self) -> float:
        """Unix seconds that ignore a change of the clock: it must end no deadline and no grace period."""
        return self._clock_offset + time.monotonic()

    def run(self) -> None:
        """The loop: observe, decide, act."""
        log(STARTED)
        self._loop()
        if not self._is_its_own():
            return
        if self.job.spec.snapshots.in_memory and (snapshots := launch.snapshot_dir(self.job.spec, state_home())):
            memory_folders.remove_all(snapshots)
        log(ENDED)

    def _loop(self) -> None:
        told = ""
        while not self.folder.result and self._is_its_own():
            try:
                if self._turn():
                    return
                told = ""
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                if str(error) != told:
                    log(f"waits for room: {error}")
                told = str(error)
            time.sleep(POLL_SECONDS)

    def _is_its_own(self) -> bool:
        """Whether the folder is still this job's: once that has ended it may be deleted, and another have its name."""
        try:
            return os.path.samestat(os.fstat(self._lock.fileno()), self.folder.lock.stat())
        except FileNotFoundError:
            return False

    def _turn(self) -> bool:
        """Observe, decide and act once; returns whether there is nothing left to supervise."""
        desired = self.folder.desired
        observed = self.observe(max(desired.nodes, self.job.spec.all_nodes), desired.restarts)
        actions = reconcile(self.job.spec, desired, observed, self.now, self.job.created)
        if self.folder.desired != desired:
            return False  # it has changed meanwhile
        for action in actions:
            if not self.act(action):
                break  # start nodes in order, and finish only after that
        return desired.suspended and not actions and not any(node.alive for node in observed)

    def observe(self, count: int, restarts: int) -> list[Observed]:
        """The observed state of every node; only losses since the last of so many requested restarts count."""
        return [self._observe(self.folder.node(index), restarts) for index in range(count)]

    def act(self, action: Action) -> bool:
        """Carry out an action; False if it is not possible yet."""
        match action:
            case Start(index):
                return self._start(self.folder.node(index))
            case Stop(index, hard):
                self._stop(self.folder.node(index), hard=hard)
            case Finish(result):
                self.folder.write(result)
                log(f"{result.phase}" + (f": {result.failure.reason}" if result.failure else ""))
        return True

    def _observe(self, node: NodeFolder, restarts: int) -> Observed:
        attempts = node.attempts
        alive = node.alive()  # read before its exit: a node that ends in between counts as alive once more
        lifetimes = [self._lifetime(node, attempt, last=attempts) for attempt in range(1, attempts + (not alive))]
        short = [life is not None and life <= SHORT_LIVED_SECONDS for life in reversed(lifetimes)]
        lost = [attempt for attempt, life in enumerate(lifetimes, 1) if life is not None]
        row = (*short, False).index(False)
        return Observed(
            index=node.index,
            alive=alive,
            attempts=attempts,
            losses=sum(not _is_earlier(node.started(attempt), restarts) for attempt in lost),
            consecutive_losses=row,
            failed_starts=0 if alive else self._failed_starts(node, attempts, row, restarts),
            said="" if alive else node.said(attempts),
            started=node.started(attempts),
            exited=node.exited(attempts),
            termination=node.termination(attempts),
            stopping_since=self.stopping.get((node.index, attempts)),
        )

    def _failed_starts(self, node: NodeFolder, last: int, row: int, restarts: int) -> int:
        """How many of the last starts, of so many that were soon lost, have failed; since the last restart."""
        failed = (
            failed_to_start(node.exited(attempt), node.termination(attempt))
            and not _is_earlier(node.started(attempt), restarts)
            for attempt in range(last, last - min(row, STARTS), -1)
        )
        return len([*takewhile(bool, failed)])

    def _lifetime(self, node: NodeFolder, attempt: int, *, last: int) -> float | None:
        """As ``_lost_after``, but earlier attempts are read only once."""
        if attempt == last:
            return _lost_after(node, attempt)
        key = (node.index, attempt)
        if key not in self.lifetimes:
            self.lifetimes[key] = _lost_after(node, attempt)
        return self.lifetimes[key]

    def _start(self, node: NodeFolder) -> bool:
        attempt = node.attempts + 1
        this = launch.Launch(
            folder=self.folder, job=self.job, index=node.index, attempt=attempt, port=self._port(), state=state_home()
        )
        env = launch.environment(this, os.environ)
        if not self.starter.ready(env):
            return False  # retried in the next iteration
        if why := disk.trouble(state_home()):
            raise OSError(errno.ENOSPC, why)  # its shim could not tell how it ends
        if attempt > 1:
            self._kill_leftovers(node, attempt - 1)
        if self.job.spec.snapshots.in_memory:
            memory_folders.renew(Path(env[variables.KIT_SNAPSHOT_DIR]))
        node.path.mkdir(parents=True, exist_ok=True)
        node.log(attempt).touch()  # from here on the attempt counts, even if this process is killed
        self.starter.start(node, attempt, restarts=self.folder.desired.restarts, env=env)
        log(f"node {node.index}: started, attempt {attempt}")
        return True

    def _stop(self, node: NodeFolder, *, hard: bool) -> None:
        attempt = node.attempts
        started = node.started(attempt)
        if started is None:
            return  # its shim is about to write it; retried in the next iteration
        self.stopping.setdefault((node.index, attempt), self.now)
        log(f"node {node.index}: {'SIGKILL: its grace period is over' if hard else 'SIGTERM'}")
        with suppress(ProcessLookupError):
            if hard:
                os.killpg(started.pid, signal.SIGKILL)
            else:
                os.kill(started.pid, signal.SIGTERM)

    def _kill_leftovers(self, node: NodeFolder, attempt: int) -> None:
        """If a shim was killed, its agent may still run: kill it before the next attempt starts."""
        started = node.started(attempt)
        if started and node.exited(attempt) is None:
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(started.pid) == started.pid:  # the same session, not a reused process id
                    os.killpg(started.pid, signal.SIGKILL)

    def _port(self) -> int:
        """The rendezvous port: unchanged while a node runs, otherwise any free one."""
        runtime = self.folder.runtime
        if runtime and (_free(runtime.port) or any(node.alive() for node in self.folder.nodes())):
            return runtime.port
        port = next(port for port in random.sample(PORTS, len(PORTS)) if _free(port))
        self.folder.write(Runtime(port=port))
        return port


def log(text: str) -> None:
    """Write one line to supervisor.log."""
    with suppress(OSError):  # on a full disk
        sys.stderr.write(stamped(text))
        sys.stderr.flush()


def _lost_after(node: NodeFolder, attempt: int) -> float | None:
    """The lifetime in seconds of an attempt that was lost; None if it was not lost."""
    started, exited = node.started(attempt), node.exited(attempt)
    if outcome(exited) != "lost":
        return None
    return exited.time - started.time if started and exited else 0.0


def _is_earlier(started: Started | None, restarts: int) -> bool:
    """Whether a node was started before the last of so many requested restarts."""
    return started is not None and started.restarts < restarts


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
