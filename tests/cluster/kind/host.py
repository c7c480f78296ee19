"""What the machine itself must have: a few Debian packages, and a docker daemon that can run kind's nodes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.kind.settings import ENVIRON, HERE, STATE
from tests.cluster.kind.steps import StepError, eventually, is_root, read, run, works

# Program -> the Debian package that has it.
PACKAGES: Final = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "runc": "runc",
    "jq": "jq",
    "ip": "iproute2",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
}
_DAEMON: Final = ("docker", "dockerd", "runc", "jq", "ip", "iptables")
POLICY: Final = Path("/usr/sbin/policy-rc.d")
RUNC: Final = STATE / "runc-narrow"  # a copy: the daemon outlives this checkout
DAEMON: Final = STATE / "dockerd.json"
DAEMON_PID: Final = STATE / "dockerd.pid"
CONTAINERD_PID: Final = Path("/var/run/docker/containerd/containerd.pid")  # dockerd's own


def obstacle() -> str:
    """Why this user cannot have a cluster on this machine; empty if nothing is known to be in the way."""
    # The cheap ones first; each is what the next one takes for granted.
    obstacles = {
        "the cluster's nodes need Linux": lambda: sys.platform != "linux",
        "no Go toolchain, 1.26 or later (Debian 12's own is too old for Kubernetes)": lambda: not has_go(),
        "no docker daemon answers, and only root can install and start one": lambda: not (is_root() or _answers()),
    }
    return next((why for why, stands in obstacles.items() if stands()), "")


def has_go() -> bool:
    """Whether there is a Go toolchain; kind and the other programs are built with it."""
    return shutil.which("go", path=ENVIRON["PATH"]) is not None


def _answers() -> bool:
    return works("docker", "info")


def packages() -> None:
    """Install what a docker daemon needs, unless one answers."""
    if not _answers():
        need(*_DAEMON)


def need(*programs: str) -> None:
    """Install the packages of those programs that are missing.

    Raises:
        StepError: something is missing, and this user may not install it.
    """
    missing = sorted({PACKAGES[name] for name in programs if not shutil.which(name, path=ENVIRON["PATH"])})
    if not missing:
        return
    if not is_root():
        raise StepError(f"not root, and {', '.join(missing)} not installed")
    with _no_services():
        run("apt-get", "update", "-qq")
        run(
            *("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing),
            env={"DEBIAN_FRONTEND": "noninteractive"},
        )


@contextmanager
def _no_services() -> Iterator[None]:
    """Debian's docker.io would start a daemon of its own, without ``runc-narrow``."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def missing_capabilities() -> str:
    """What privileged containers cannot be given on this machine; see ``runc-narrow``."""
    return read(HERE / "runc-narrow", "--missing")


def docker() -> None:
    """Use the daemon that answers, or start one.

    Raises:
        StepError: the daemon that answers cannot run privileged containers here, or none can be started.
    """
    shutil.copy2(HERE / "runc-narrow", RUNC)
    missing = missing_capabilities()
    if not _answers():
        if started := _own_daemon() is None:  # it may just be slow: a second one would take its socket away
            _start_daemon(narrow=bool(missing))
        eventually(_answers, seconds=60, what="a docker daemon that answers (log/dockerd.log)")
        if started:
            _forget_containers()
    if missing and read("docker", "info", "-f", "{{.DefaultRuntime}}") != "narrow":
        raise StepError(
            f"this machine lacks {missing}, and its docker daemon does not know how to do without: stop it "
            f"(a new one is started here), or make {RUNC} its default runtime"
        )


def _start_daemon(*, narrow: bool) -> None:
    config: dict[str, object] = {"data-root": str(STATE / "docker")}
    if narrow:
        config |= {"default-runtime": "narrow", "runtimes": {"narrow": {"path": str(RUNC)}}}
    DAEMON.write_text(json.dumps(config), encoding="utf-8")
    # After a crash these may name other processes, and dockerd would not start.
    DAEMON_PID.unlink(missing_ok=True)
    if not _runs(CONTAINERD_PID, b"containerd"):
        CONTAINERD_PID.unlink(missing_ok=True)
    with (STATE / "log" / "dockerd.log").open("a") as log:
        subprocess.Popen(
            ["dockerd", "--config-file", DAEMON, "--pidfile", DAEMON_PID],
            env=ENVIRON,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _forget_containers() -> None:
    """Remove what a daemon of ours brings back from before, and its networks.

    After a power cut the registry that docker 20.10 had started again took calls and answered none.
    """
    if containers := read("docker", "ps", "-aq").split():
        run("docker", "rm", "-f", *containers)
    run("docker", "network", "prune", "-f")


def stop_daemon() -> None:
    """Stop the docker daemon that :func:`docker` started, and no other."""
    if process := _own_daemon():
        os.kill(process, signal.SIGTERM)
        eventually(lambda: _own_daemon() is None, seconds=60, what="the end of the docker daemon")


def _own_daemon() -> int | None:
    return _runs(DAEMON_PID, str(DAEMON).encode())


def _runs(pidfile: Path, word: bytes) -> int | None:
    """The process that a file names, if its command line has the word: process ids are used again."""
    if not pidfile.exists():
        return None
    process = pidfile.read_text(encoding="utf-8").strip()
    command = Path("/proc", process, "cmdline")
    return int(process) if command.exists() and word in command.read_bytes() else None


def debian_mirror() -> str:
    """The mirror that this machine's apt takes Debian from, whatever it is."""
    lines = read("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages").splitlines()
    for line in lines:
        release, _, address = line.partition(" ")
        if release in {"bookworm", "stable"}:
            return address
    raise StepError("apt knows no Debian 12 mirror here, and no image registry answers")
