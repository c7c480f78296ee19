"""A forked process ends as a new interpreter would, and never goes back into the frames that it was forked in."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import atexit, os, signal, sys, threading, time
from kittrain.system.reborn import live, take_over

def main():
    {body}

child = os.fork()
if not child:
    try:
        live(main)
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
    ("body", "code", "told"),
    [
        ("pass", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('no')", 1, "no\n"),
        ("sys.exit(256 + 3)", 3, ""),
    ],
)
def test_its_exit_code_is_python_s(body: str, code: int, told: str) -> None:
    assert ended(body) == (code, "", told)


def test_an_exception_is_told_and_is_1() -> None:
    code, out, told = ended("raise ValueError('why')")
    assert (code, out) == (1, "")
    assert told.endswith("ValueError: why\n")


def test_it_waits_for_threads_and_runs_what_was_left_for_the_end() -> None:
    late = "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\natexit.register(print, 'last')"
    assert ended(late) == (0, "thread\nlast\n", "")


def test_it_takes_over_environment_and_signals() -> None:
    body = """signal.signal(signal.SIGTERM, signal.SIG_IGN)
take_over({"ONLY": "this"})
print(dict(os.environ), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"""
    assert ended(body) == (0, "{'ONLY': 'this'} True\n", "")
