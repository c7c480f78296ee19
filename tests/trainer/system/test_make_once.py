"""A folder that several processes need is created once, and is never seen incomplete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kittrain.system.make_once import make_once

MAKER = """
import sys, time
from pathlib import Path
from kittrain.system.make_once import make_once

def make(content):
    with Path({log!r}).open("a") as log:
        log.write("made\\n")
    (content / "first").touch()
    time.sleep({seconds})
    (content / "second").touch()

make_once(Path({folder!r}), make)
print(sorted(path.name for path in Path({folder!r}).iterdir()))
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    script = MAKER.format(log=str(folder.with_name("log")), folder=str(folder), seconds=seconds)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def test_one_of_several_processes_creates_it_and_all_see_it_complete(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "set"
    folder.parent.mkdir()
    processes = [start(folder, 0.5) for _ in range(6)]
    assert [process.communicate()[0] for process in processes] == ["['first', 'second']\n"] * 6
    assert (folder.parent / "log").read_text() == "made\n"
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []


def test_the_next_process_starts_over_when_the_maker_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    killed = start(folder, 600)
    while not (tmp_path / ".making-set" / "content" / "first").exists():
        time.sleep(0.01)
    waiting = start(folder, 0)
    time.sleep(0.3)
    assert waiting.poll() is None
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert waiting.communicate()[0] == "['first', 'second']\n"


def test_a_failure_is_passed_on_and_leaves_nothing(tmp_path: Path) -> None:
    def fail(content: Path) -> None:
        (content / "half").touch()
        raise ValueError("no network")

    with pytest.raises(ValueError, match="no network"):
        make_once(tmp_path / "deep" / "set", fail)
    assert list((tmp_path / "deep").iterdir()) == []
    make_once(tmp_path / "deep" / "set", lambda content: (content / "all").touch())
    assert [path.name for path in (tmp_path / "deep" / "set").iterdir()] == ["all"]


def test_an_existing_folder_needs_no_writable_parent(tmp_path: Path) -> None:
    def fail(_: Path) -> None:
        raise AssertionError("made again")

    (tmp_path / "parent" / "set").mkdir(parents=True)
    (tmp_path / "parent").chmod(0o500)
    make_once(tmp_path / "parent" / "set", fail)
    (tmp_path / "parent").chmod(0o700)
