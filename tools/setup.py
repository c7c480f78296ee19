"""Make ``.venv`` with all that running and testing need; ``make setup`` calls this. Standard library only.

Runs by whatever Python is there, before anything is installed. Safe to run twice at once: the second one waits, and
finds the work done.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INPUTS = (Path("pyproject.toml"), Path("tools/setup.py"))
LOCK = Path(".cache/setup.lock")
VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
# uv trusts only its own certificates unless told so; a proxy's certificate lies in the system's store.
ENVIRON = {"UV_SYSTEM_CERTS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **os.environ}


def main(ready: Path) -> None:
    """Bring ``.venv`` up to date with ``pyproject.toml``, then touch ``ready``."""
    with _alone():
        if ready.exists() and ready.stat().st_mtime >= max(path.stat().st_mtime for path in INPUTS):
            return
        with _step("virtual environment in .venv"):
            _make_venv()
        with _step("installer (uv; pip where it cannot be had)"):
            installer = _installer()
        index = os.environ.get("TORCH_INDEX_URL")
        if index:
            with _step("torch from TORCH_INDEX_URL"):
                _run(*installer, "--extra-index-url", index, *_torch_requirements())
        with _step("packages (torch is up to 3 GB to download)"):
            _run(*installer, "-e", ".[trainer]", "--group", "dev")
        with _step("kubectl, which tests ask for a second opinion"):
            _need_kubectl()
        ready.touch()
    print("setup: ready; try .venv/bin/kitctl --help", flush=True)


def _make_venv() -> None:
    if PYTHON.exists() and _output(str(PYTHON), "-m", "pip", "--version"):
        return
    make = (sys.executable, "-m", "venv", "--clear", "--upgrade-deps", str(VENV))
    try:
        _run(*make)
    except subprocess.CalledProcessError:
        # Debian's python3 comes without the part that puts pip into a new environment.
        if not _may_install():
            sys.exit("setup: python3 -m venv does not work here; install python3-venv")
        _apt_install("python3-venv")
        _run(*make)


def _installer() -> tuple[str, ...]:
    pip = (str(PYTHON), "-m", "pip")
    try:
        _run(*pip, "install", "--quiet", "uv")
    except subprocess.CalledProcessError:
        return (*pip, "install", "--quiet")
    index = _output(*pip, "config", "get", "global.index-url")
    if index:  # uv does not read pip's configuration
        ENVIRON.setdefault("UV_DEFAULT_INDEX", index)
    # As pip does by itself: what is not compiled now is compiled by every process that may not write next to torch.
    return (str(PYTHON), "-m", "uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", str(PYTHON))


def _torch_requirements() -> list[str]:
    project = tomllib.loads(INPUTS[0].read_text(encoding="utf-8"))["project"]
    return [line for line in project["optional-dependencies"]["trainer"] if line.startswith("torch")]


def _need_kubectl() -> None:
    if shutil.which("kubectl"):
        return
    if _may_install():
        _apt_install("kubernetes-client")
        return
    missing = "kubectl is not on PATH: the tests that compare with it will be skipped; install it to run them"
    if os.environ.get("CI"):
        sys.exit(f"setup: {missing}")
    print(f"setup: {missing}", flush=True)


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _apt_install(package: str) -> None:
    _run("apt-get", "update", "-qq")
    _run("apt-get", "install", "-qq", "-y", "--no-install-recommends", package)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env=ENVIRON, stdin=subprocess.DEVNULL)


def _output(*command: str) -> str:
    done = subprocess.run(command, check=False, env=ENVIRON, capture_output=True, text=True)
    return done.stdout.strip()


@contextmanager
def _alone() -> Iterator[None]:
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: another one is at work here; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _step(what: str) -> Iterator[None]:
    print(f"setup: {what} ...", flush=True)
    start = time.monotonic()
    yield
    print(f"setup:   done in {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"setup: this command failed with exit code {error.returncode}: {' '.join(error.cmd)}")
