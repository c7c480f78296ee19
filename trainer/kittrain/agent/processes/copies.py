"""The process that keeps copies of other nodes' shards, next to the agent, where each node has a folder of its own.

It is a process of its own, so that nothing of it is in the ranks or the agent. The agent holds the socket that it
accepts from: so its address stays if it is started again.
"""

from __future__ import annotations

import hmac
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kitjob import typed, variables
from kitjob.report import CopiesReport
from kittrain.job.env import NodeEnv
from kittrain.system import port
from kittrain.system.import_path import with_packages

COMMAND: Final = (sys.executable, "-P", "-m", "kittrain.rank.snapshots.peers")
MARK: Final = ".copies.json"  # kittrain.rank.snapshots.folder.copies_status
POLL: Final = 0.05
RELEASE: Final = 5.0  # seconds for that
AGAIN: Final = 2.0  # seconds until one that has ended is started again
PURPOSE: Final = b"copies on peers\0"
Log = Callable[[str], None]


class CopiesProcess:
    """Runs the process as long as this node's agent.

    Args:
        node: the node's environment.
        secret: of the run; None if it has none.
        log: receives lines for the log.

    Attributes:
        address: where other nodes reach it, as ``address:port``; empty until it listens.
    """

    def __init__(self, node: NodeEnv, secret: bytes | None, log: Log) -> None:
        self._node = node
        self._key = hmac.digest(secret or b"", PURPOSE + node.run_id.encode(), "sha256")
        self._log = log
        self._listener: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._round: bytes = b""
        self._stopped = False
        self._end = b""
        self.address = ""

    def listen(self, address: str) -> None:
        """Start it, if it has not been; other nodes reach this one at the address."""
        if self._listener is None:
            self._listener = port.listen(address, 0)
            self._start()
        self.address = f"{address}:{self._listener.getsockname()[1]}"

    def begin(self, number: int, places: Sequence[Mapping[str, Any]]) -> None:
        """A round of the ranks has begun.

        Args:
            number: of the round.
            places: of its nodes that keep copies, in the order of their ranks: ``node``, ``host`` and ``address``.
        """
        self._round = typed.dump({"number": number, "places": places}) + b"\n"
        self._tell(self._round)

    def watch(self) -> None:
        """Start it again if it has ended; call it often."""
        ended = self._process and self._process.poll() is not None
        if ended and not self._stopped and time.monotonic() > self._started_at + AGAIN:
            assert self._process
            self._log(f"warning: the process that keeps copies has ended with {self._process.returncode}")
            self._start()

    @property
    def report(self) -> CopiesReport | None:
        """How far it is; None: it has not begun."""
        facts = self._facts()
        if facts.get("run") == self._node.run_id:
            return CopiesReport(**{name: facts[name] for name in CopiesReport.__fields__ if name in facts})
        return None

    def settle(
        self,
        longest: float,
        left: Callable[[], float | None] = lambda: None,
        *,
        job: bool = False,
        on_lead: Callable[[], None] = lambda: None,
    ) -> bool:
        """Nothing more is published here: wait until no other node needs what is here, as time allows.

        Args:
            longest: seconds, since the node that uploads was last known to want this one to stay.
            left: seconds until this node has to end; None: it need not. It may change.
            job: whether training has ended on all nodes.
            on_lead: called if this node is to upload what there is in place of others, which are lost.

        Returns:
            Whether it is.
        """
        if self._process is None or not self._round or self._end:
            return False
        self._end = b"end job\n" if job else b"end node\n"
        self._tell(self._end)
        began, until, leads = time.monotonic(), None, False
        while time.monotonic() < (until or began + longest):
            if until is None and (seconds := left()) is not None:
                until = time.monotonic() + seconds
            facts, own = self._facts(), self._process.pid
            if not leads and facts.get("leads") == own:
                leads = True
                on_lead()
            if facts.get("settled") == own:
                break
            if facts.get("stays") == own:
                began = time.monotonic()
            self.watch()
            time.sleep(POLL)
        return leads

    def release(self) -> None:
        """What was here is uploaded, or given up: tell the nodes that stay for it."""
        if self._process and self._end:
            self._tell(b"release\n")
            until = time.monotonic() + RELEASE
            while time.monotonic() < until and self._facts().get("released") != self._process.pid:
                if self._process.poll() is not None:
                    return  # they notice
                time.sleep(POLL)

    def stop(self) -> None:
        """End it."""
        self._stopped = True
        if self._listener:
            self._listener.close()  # else others would wait for an answer
        if self._process:
            self._process.kill()
            self._process.wait()

    def _facts(self) -> Mapping[str, Any]:
        folder = self._node.snapshot_dir
        with suppress(OSError, ValueError):
            return dict(typed.parse((folder / MARK).read_bytes())) if folder else {}
        return {}

    def _start(self) -> None:
        assert self._listener
        self._started_at, descriptor = time.monotonic(), self._listener.fileno()
        environ = with_packages({**os.environ, variables.KIT_RUN_ID: self._node.run_id}, self._node.packages)
        words = ("--parent", str(os.getpid()), "--listener", str(descriptor))
        self._process = subprocess.Popen(
            (*COMMAND, *words), env=environ, stdin=subprocess.PIPE, pass_fds=(descriptor,), bufsize=0
        )
        self._tell(self._key.hex().encode() + b"\n" + self._round + self._end)

    def _tell(self, lines: bytes) -> None:
        if self._process and self._process.stdin:
            with suppress(OSError, ValueError):  # it has ended, and is started again; or nothing more is to be told
                self._process.stdin.write(lines)
