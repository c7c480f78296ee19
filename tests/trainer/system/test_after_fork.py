"""A forked process exits as a new interpreter would, without returning to the parent's frames."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import atexit, os, signal, sys, threading, time
from kittrain.system.after_fork import run_and_exit, reset_after_fork

def main():
    {body}

child = os.fork()
if not child:
    try:
        run_and_exit(main)
    finally:
        print("never gets here")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def ended(body: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a forked process."""
    script = SCRIPT.format(body=textwrap.indent(body, "    ").lstrip())
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("body", "code", "stderr"),
    [
        ("pass", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('no')", 1, "no\n"),
        ("sys.exit(256 + 3)", 3, ""),
    ],
)
def test_its_exit_code_is_that_of_python(body: str, code: int, stderr: str) -> None:
    assert ended(body) == (code, "", stderr)


def test_an_exception_is_printed_and_exits_with_1() -> None:
    code, out, stderr = ended("raise ValueError('why')")
    assert (code, out) == (1, "")
    assert stderr.endswith("ValueError: why\n")


def test_it_waits_for_threads_and_runs_atexit_functions() -> None:
    late = "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\natexit.register(print, 'last')"
    assert ended(late) == (0, "thread\nlast\n", "")


def test_it_finalizes_all_but_what_was_dropped() -> None:
    body = """\
        import pprint, weakref
        from kittrain.system.after_fork import drop_finalizers
        weakref.finalize(sys, [].append, "has no module")
        weakref.finalize(sys, print, "dropped")
        weakref.finalize(sys, pprint.pprint, "kept")
        drop_finalizers("builtins")
        weakref.finalize(sys, print, "later")
    """
    assert ended(textwrap.dedent(body)) == (0, "later\n'kept'\n", "")


def test_it_resets_environment_and_signals() -> None:
    body = """signal.signal(signal.SIGTERM, signal.SIG_IGN)
reset_after_fork({"ONLY": "this"})
print(dict(os.environ), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"""
    assert ended(body) == (0, "{'ONLY': 'this'} True\n", "")


def test_spawned_processes_start_in_its_folder_with_a_secret_of_its_own() -> None:
    body = """import multiprocessing, multiprocessing.process
before = multiprocessing.current_process().authkey
os.chdir("/tmp")
reset_after_fork(os.environ)
print(multiprocessing.process.ORIGINAL_DIR, multiprocessing.current_process().authkey != before)"""
    assert ended(body) == (0, "/tmp True\n", "")


HEAP = """
import gc, os, random, sys
from pathlib import Path
from kittrain.system.after_fork import record_generators, reseed_generators

class Own(random.Random):
    pass

made = {"nested": [random.Random(1), Own(1)]}
heap = [[number] for number in range(400_000)]  # 50 MB
gc.disable()
gc.freeze()

def private():
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(rollup.split("Private_Dirty:")[1].split()[0])

if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
before = private()
record_generators()
grown = private() - before
states = [one.getstate() for one in made["nested"]]
reseed_generators()
changed = [one.getstate() != state for one, state in zip(made["nested"], states)]
print(changed, grown < 5_000 or grown, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells which memory is shared")
def test_generators_are_found_without_a_copy_of_the_memory_that_is_shared() -> None:
    done = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[True, True] True\n", "")
