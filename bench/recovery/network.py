"""A network of namespaces, one per simulated machine, connected by a bridge in another namespace; needs root.

It does not affect the host's network, and is removed on exit. Leftovers of a killed run are removed by the next run.
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


class NetworkUnavailableError(Exception):
    """Namespaces cannot be created here."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A simulated machine: a namespace with one address."""

    name: str
    address: str
    switch: str  # the namespace with the other end of its cable
    cable: str

    def command(self, command: list[str]) -> list[str]:
        """Wrap a command so that it runs in the namespace, as one process."""
        return ["ip", "netns", "exec", self.name, *command]

    def disconnect(self) -> None:
        """Set its link down on the other side: no connection is closed."""
        ip("-n", self.switch, "link", "set", self.cable, "down")

    def reconnect(self) -> None:
        """Undo ``disconnect``."""
        ip("-n", self.switch, "link", "set", self.cable, "up")

    def pids(self) -> list[int]:
        """The processes in the namespace."""
        return [int(pid) for pid in ip("netns", "pids", self.name).split()]

    def kill(self) -> None:
        """Kill all of its processes."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_SECONDS)

    def wait_for_exit(self, timeout: float) -> None:
        """Wait until no process is left; kill the rest after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.pids() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.kill()


class Network:
    """Some machines that can reach each other; a context manager.

    Raises:
        NetworkUnavailableError: on entry, without root or without ``ip``.
    """

    def __init__(self, size: int) -> None:
        self._switch = f"{PREFIX}-{os.getpid()}-switch"
        self.machines = tuple(
            Machine(
                name=f"{PREFIX}-{os.getpid()}-{number}",
                address=f"10.88.0.{number + 1}",
                switch=self._switch,
                cable=f"cable{number}",
            )
            for number in range(size)
        )

    def __enter__(self) -> Self:
        if os.geteuid() or not shutil.which("ip"):
            raise NetworkUnavailableError("network namespaces need root and the command ip (package iproute2)")
        _remove_leftovers()
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines:
            with suppress(subprocess.CalledProcessError):  # it was not created
                machine.kill()
        for name in (*(machine.name for machine in self.machines), self._switch):
            with suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)

    def _build(self) -> None:
        switch = ("-n", self._switch)
        ip("netns", "add", self._switch)
        ip(*switch, "link", "add", "bridge", "type", "bridge")
        ip(*switch, "link", "set", "bridge", "up")
        for machine in self.machines:
            here = ("-n", machine.name)
            ip("netns", "add", machine.name)
            ip(*switch, "link", "add", machine.cable, "type", "veth", "peer", "name", "eth0", "netns", machine.name)
            ip(*switch, "link", "set", machine.cable, "master", "bridge", "up")
            ip(*here, "address", "add", f"{machine.address}/24", "dev", "eth0")
            ip(*here, "link", "set", "eth0", "up")
            ip(*here, "link", "set", "lo", "up")


def _remove_leftovers() -> None:
    """Remove the namespaces of killed runs."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(f"{PREFIX}-") and not Path("/proc", name.split("-")[2]).exists():
            with suppress(subprocess.CalledProcessError):  # its run, or another one, was faster
                ip("netns", "delete", name)


def ip(*args: str) -> str:
    """Run ``ip``; returns its output.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    return subprocess.run(["ip", *args], check=True, capture_output=True, text=True).stdout
