"""A network of the benchmark's own: a namespace for each machine, joined by a bridge in one more; needs root.

Nothing of it is to be seen in the machine's own network, and it is gone when its context ends. What a killed run has
left behind is removed by the next.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PREFIX = "kit-bench"
POLL_SECONDS = 0.01


class NoNetwork(Exception):
    """Namespaces cannot be made here; says why."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A machine: a namespace with one address."""

    name: str
    address: str
    switch: str  # the namespace that holds the other end of its cable
    cable: str

    def command(self, command: list[str]) -> list[str]:
        """The command that runs a command here, as one process."""
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self) -> None:
        """Take its link down from the other side: nobody is told, neither here nor there."""
        ip("-n", self.switch, "link", "set", self.cable, "down")

    def mend(self) -> None:
        """Undo ``cut``."""
        ip("-n", self.switch, "link", "set", self.cable, "up")

    def pids(self) -> list[int]:
        """The processes that run here."""
        return [int(pid) for pid in ip("netns", "pids", self.name).split()]

    def kill(self) -> None:
        """Kill all of them, as a machine that is lost would."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_SECONDS)

    def await_silence(self, patience: float) -> None:
        """Wait until no process runs here any more, and kill what is left after ``patience`` seconds."""
        deadline = time.monotonic() + patience
        while self.pids() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.kill()


class Network:
    """Some machines that reach each other; a context.

    Raises:
        NoNetwork: on entry, without root or without ``ip``.
    """

    def __init__(self, size: int) -> None:
        self._switch = f"{PREFIX}-{os.getpid()}-switch"
        self.places = tuple(
            Place(
                name=f"{PREFIX}-{os.getpid()}-{number}",
                address=f"10.88.0.{number + 1}",
                switch=self._switch,
                cable=f"cable{number}",
            )
            for number in range(size)
        )

    def __enter__(self) -> Self:
        if os.geteuid() or not shutil.which("ip"):
            raise NoNetwork("network namespaces need root and the command ip (package iproute2)")
        _sweep()
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for place in self.places:
            with suppress(subprocess.CalledProcessError):  # it was not built
                place.kill()
        for name in (*(place.name for place in self.places), self._switch):
            with suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)

    def _build(self) -> None:
        switch = ("-n", self._switch)
        ip("netns", "add", self._switch)
        ip(*switch, "link", "add", "bridge", "type", "bridge")
        ip(*switch, "link", "set", "bridge", "up")
        for place in self.places:
            here = ("-n", place.name)
            ip("netns", "add", place.name)
            ip(*switch, "link", "add", place.cable, "type", "veth", "peer", "name", "eth0", "netns", place.name)
            ip(*switch, "link", "set", place.cable, "master", "bridge", "up")
            ip(*here, "address", "add", f"{place.address}/24", "dev", "eth0")
            ip(*here, "link", "set", "eth0", "up")
            ip(*here, "link", "set", "lo", "up")


def _sweep() -> None:
    """Remove the namespaces of runs that were killed."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(f"{PREFIX}-") and not Path("/proc", name.split("-")[2]).exists():
            ip("netns", "delete", name)


def ip(*words: str) -> str:
    """What ``ip`` says.

    Raises:
        subprocess.CalledProcessError: it refused.
    """
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
