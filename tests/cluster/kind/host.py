"""What the machine itself needs: a few Debian packages, and a docker daemon that can run kind's nodes."""

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
from tools import system_changes

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
    """Why this user cannot have a cluster on this machine; empty if no reason is known."""
    # The cheap checks first; each relies on the one before.
    obstacles = {
        "the cluster's nodes need Linux": lambda: sys.platform != "linux",
        "no Go toolchain, 1.26 or later (Debian 12's own is too old for Kubernetes)": lambda: not has_go(),
        "no docker daemon answers, and only root can install and start one": lambda: not (is_root() or _answers()),
    }
    found = next((why for why, applies in obstacles.items() if applies()), "")
    if not found and system_changes.declined() and (changes := planned_changes()):
        return f"{system_changes.VARIABLE} is set, and a cluster needs to {'; '.join(changes)}"
    return found


def planned_changes() -> list[str]:
    """What `up` changes on this machine outside its own folder, as phrases; empty if nothing."""
    changes = []
    packages = [] if _answers() else missing_packages(*_DAEMON)
    if not _has_base_images():
        packages += missing_packages("debootstrap")
    if packages:
        changes.append(f"install Debian packages ({', '.join(packages)})")
    if not _answers():
        changes.append("start a docker daemon, which keeps running (python3 -m tests.cluster.kind stop)")
    return changes


def _has_base_images() -> bool:
    """Whether the images were pulled, or debootstrap has made its part of them."""
    stamps = STATE / "stamp"
    return any((stamps / name).exists() for name in ("node-pulled", "debian-bookworm"))


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
        StepError: a package is missing, and this user may not or does not want to install it.
    """
    missing = missing_packages(*programs)
    if not missing:
        return
    if not is_root():
        raise StepError(f"not root, and {', '.join(missing)} not installed")
    if system_changes.declined():
        raise StepError(f"{system_changes.VARIABLE} is set, and {', '.join(missing)} not installed")
    with _no_services():
        run("apt-get", "update", "-qq")
        run(
            *("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing),
            env={"DEBIAN_FRONTEND": "noninteractive"},
        )


def missing_packages(*programs: str) -> list[str]:
    """The Debian packages of those programs that are not installed."""
    return sorted({PACKAGES[name] for name in programs if not shutil.which(name, path=ENVIRON["PATH"])})


@contextmanager
def _no_services() -> Iterator[None]:
    """Keep Debian's docker.io from starting its own daemon, which would lack ``runc-narrow``."""
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
    """The capabilities that this machine cannot grant to privileged containers; see ``runc-narrow``."""
    return read(HERE / "runc-narrow", "--missing")


def docker() -> None:
    """Use the daemon that answers, or start one.

    Raises:
        StepError: the daemon that answers cannot run privileged containers here, or none can be started.
    """
    shutil.copy2(HERE / "runc-narrow", RUNC)
    missing = missing_capabilities()
    if not _answers():
        if started := _own_daemon() is None:  # a running one may just be slow, and a second one would take its socket
            _start_daemon(narrow=bool(missing))
        eventually(_answers, seconds=60, what="the docker daemon answers (log/dockerd.log)")
        if started:
            _forget_containers()
    if missing and read("docker", "info", "-f", "{{.DefaultRuntime}}") != "narrow":
        raise StepError(
            f"this machine lacks {missing}, and its docker daemon is not configured for that: stop it "
            f"(this command then starts another one), or make {RUNC} its default runtime"
        )


def _start_daemon(*, narrow: bool) -> None:
    config: dict[str, object] = {"data-root": str(STATE / "docker")}
    if narrow:
        config |= {"default-runtime": "narrow", "runtimes": {"narrow": {"path": str(RUNC)}}}
    DAEMON.write_text(json.dumps(config), encoding="utf-8")
    # After a crash these files may name other processes, and dockerd would not start.
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
    """Remove the containers that our daemon restored, and its networks.

    After a power cut, the registry that docker 20.10 restarted accepted connections but did not answer.
    """
    if containers := read("docker", "ps", "-aq").split():
        run("docker", "rm", "-f", *containers)
    run("docker", "network", "prune", "-f")


def stop_daemon() -> None:
    """Stop the docker daemon that :func:`docker` started, and no other."""
    if process := _own_daemon():
        os.kill(process, signal.SIGTERM)
        eventually(lambda: _own_daemon() is None, seconds=60, what="the docker daemon stops")


def _own_daemon() -> int | None:
    return _runs(DAEMON_PID, str(DAEMON).encode())


def _runs(pidfile: Path, word: bytes) -> int | None:
    """The process id in a file, if its command line contains ``word``: process ids are reused."""
    if not pidfile.exists():
        return None
    process = pidfile.read_text(encoding="utf-8").strip()
    command = Path("/proc", process, "cmdline")
    return int(process) if command.exists() and word in command.read_bytes() else None


def debian_mirror() -> str:
    """The Debian mirror that this machine's apt uses."""
    lines = read("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages").splitlines()
    for line in lines:
        release, _, address = line.partition(" ")
        if release in {"bookworm", "stable"}:
            return address
    raise StepError("apt knows no Debian 12 mirror here, and no image registry answers")
