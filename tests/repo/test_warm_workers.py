"""Workers of ``pytest -n`` that are forked from one process: they differ from others in nothing but their price."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import warm_workers

ROOT = Path(warm_workers.__file__).parents[1]
CONFTEST = "from tests.warm_workers import fork_workers as pytest_xdist_setupnodes"
PLACES = """
import multiprocessing, os, pathlib, random, sys, tempfile, time

IMPORTED, HERE, RANDOM = os.getpid(), pathlib.Path(os.environ["HERE"]), random.Random()

def noted(name):
    lines = [IMPORTED, os.getpid(), random.random(), RANDOM.random(), tempfile.gettempdir(), *sys.argv]
    (HERE / name).write_text(" ".join(map(str, lines)))
    end = time.monotonic() + 60
    while len([*HERE.glob("[ab]")]) < 2 and time.monotonic() < end:
        time.sleep(0.01)  # so that each of two workers has one of the tests

def test_a():
    noted("a")

def test_b():
    noted("b")
    child = multiprocessing.get_context("spawn").Process(target=pathlib.Path.touch, args=(HERE / "child",))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert (HERE / "child").exists()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


def start(folder: Path, tests: str) -> subprocess.Popen[str]:
    """Two workers run these tests."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "test_it.py",
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HERE": str(folder), "TMPDIR": str(folder)}
    for name in [name for name in environ if name.startswith("PYTEST_")]:
        del environ[name]
    return subprocess.Popen(
        command, cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def run(folder: Path, tests: str) -> tuple[int, str]:
    process = start(folder, tests)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def places(folder: Path) -> list[list[str]]:
    return [(folder / name).read_text().split() for name in "ab"]


def of(folder: Path) -> list[int]:
    """The processes of a run."""
    own = f"HERE={folder}\0".encode()
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if own in read(path)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


def test_workers_are_forked_from_one_process_and_each_has_random_numbers_of_its_own(tmp_path: Path) -> None:
    code, output = run(tmp_path, PLACES)
    assert code == 0, output
    assert "2 passed" in output
    (imported, first, *numbers, folder, argument), (also, second, *others, _, _) = places(tmp_path)
    assert imported == also
    assert len({imported, first, second}) == 3
    assert not {*numbers} & {*others}
    assert (folder, argument) == (str(tmp_path), "-c")


@pytest.mark.wide
def test_where_an_import_has_started_a_thread_each_worker_imports_by_itself(tmp_path: Path) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    code, output = run(tmp_path, thread + PLACES)
    assert code == 0, output
    assert [one[0] for one in places(tmp_path)] == [one[1] for one in places(tmp_path)]


@pytest.mark.wide
def test_a_file_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    code, output = run(tmp_path, "import no_such_module")
    assert code == 1
    assert "No module named 'no_such_module'" in output


@pytest.mark.wide
def test_a_worker_that_crashes_is_replaced(tmp_path: Path) -> None:
    code, output = run(tmp_path, "import os\ndef test_a(): os._exit(3)\ndef test_b(): pass\n")
    assert code == 1
    assert "1 failed, 1 passed" in output, output


@pytest.mark.wide
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_a_session_that_was_ended(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "import os, time\ndef test_a():\n    open('begun', 'w')\n    time.sleep(600)\n")
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(of(tmp_path)) > 3
    process.send_signal(number)
    process.communicate(timeout=60)
    while of(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
