"""Make ``.venv`` with everything that running and testing need; ``make setup`` runs this. Standard library only.

Runs with the system's Python, before anything is installed. Two runs at once are safe: the second one waits, and finds
the work done.
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

from tools import system_changes

CONSTRAINTS = Path("tools/constraints.txt")
INPUTS = (Path("pyproject.toml"), CONSTRAINTS, Path("tools/setup.py"))
LOCK = Path(".cache/setup.lock")
VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
# By default uv trusts only its own certificates; a proxy's certificate is in the system's store.
ENVIRON = {"UV_SYSTEM_CERTS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **os.environ}


def main(ready: Path) -> None:
    """Bring ``.venv`` up to date with ``pyproject.toml``, then touch ``ready``."""
    with _exclusive():
        if ready.exists() and ready.stat().st_mtime >= max(path.stat().st_mtime for path in INPUTS):
            return
        with _step("virtual environment in .venv"):
            _make_venv()
        with _step("installer (uv, or pip if uv cannot be installed)"):
            installer = _installer()
        pinned = ("--constraint", str(CONSTRAINTS))
        index = os.environ.get("TORCH_INDEX_URL")
        if index:
            with _step("torch from TORCH_INDEX_URL"):
                _run(*installer, *pinned, "--extra-index-url", index, *_torch_requirements())
        with _step("packages (up to 3 GB to download, for torch)"):
            _run(*installer, *pinned, "-e", ".[trainer]", "--group", "dev")
        with _step("kubectl, which tests compare with"):
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
        # Debian's python3 lacks ensurepip, which installs pip into a new environment.
        if not apt_install("python3-venv"):
            sys.exit("setup: python3 -m venv does not work here; install python3-venv")
        _run(*make)


def _installer() -> tuple[str, ...]:
    pip = (str(PYTHON), "-m", "pip")
    try:
        _run(*pip, "install", "--quiet", "uv")
    except subprocess.CalledProcessError:
        return (*pip, "install", "--quiet")
    use_pips_index()
    # As pip does by default. Otherwise each process that may not write next to torch compiles its modules again.
    return (str(PYTHON), "-m", "uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", str(PYTHON))


def use_pips_index() -> None:
    """Have uv use the package index of pip's configuration, which it does not read."""
    index = _output(str(PYTHON), "-m", "pip", "config", "get", "global.index-url")
    if index:
        ENVIRON.setdefault("UV_DEFAULT_INDEX", index)


def resolve() -> None:
    """Write the newest versions that ``pyproject.toml`` allows as constraints; ``make constraints`` runs this."""
    use_pips_index()
    line = "--upgrade --universal --quiet --python-version 3.11 --no-header --no-annotate --extra trainer --group dev"
    _run(str(PYTHON), "-m", "uv", "pip", "compile", *line.split(), str(INPUTS[0]), "-o", str(CONSTRAINTS))
    print(f"{CONSTRAINTS}: written; make setup installs these versions", flush=True)


def _torch_requirements() -> list[str]:
    project = tomllib.loads(INPUTS[0].read_text(encoding="utf-8"))["project"]
    return [line for line in project["optional-dependencies"]["trainer"] if line.startswith("torch")]


def _need_kubectl() -> None:
    if shutil.which("kubectl") or apt_install("kubernetes-client"):
        return
    missing = "kubectl is not on PATH: tests that compare with it will be skipped; install it to run them"
    if os.environ.get("CI"):
        sys.exit(f"setup: {missing}")
    print(f"setup: {missing}", flush=True)


def apt_install(package: str) -> bool:
    """Install a Debian package; False if this user cannot, or does not want to."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    if not system_changes.allowed(f"install the Debian package {package}"):
        return False
    _run("apt-get", "update", "-qq")
    _run("apt-get", "install", "-qq", "-y", "--no-install-recommends", package)
    return True


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env=ENVIRON, stdin=subprocess.DEVNULL)


def _output(*command: str) -> str:
    done = subprocess.run(command, check=False, env=ENVIRON, capture_output=True, text=True)
    return done.stdout.strip()


@contextmanager
def _exclusive() -> Iterator[None]:
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: waiting for another setup of this checkout", flush=True)
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
