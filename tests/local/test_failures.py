"""Messages of the command line about a failed job."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SCRIPT = """
import os, sys
import torch.distributed as dist
dist.init_process_group("gloo")
if os.environ["RANK"] == "1":
    print("looking for data")
    sys.stderr.write("\\x1b[31mno data\\x1b[0m in /data/x\\n")
    sys.exit(3)
dist.barrier()
"""
CAUSE = "exit code 3: no data in /data/x"


def test_each_failure_and_the_end_have_a_cause_with_rank_node_and_last_lines(kit: Kit) -> None:
    (kit.folder / "train.py").write_text(SCRIPT)
    words = ("--name", "fails", "--nodes", "3", "--max-restarts", "2", "--follow", "train.py")
    follower = kit.start("submit", *words)
    output, errors = follower.communicate(timeout=600)
    assert follower.returncode == 100
    reported = [line for line in output.splitlines() if line.startswith("[agent ") and "failed" in line]
    assert [line for line in reported if CAUSE in line] == [
        f"[agent 1]: rank 1 failed ({CAUSE}), restart 1 of 2",
        f"[agent 1]: rank 1 failed ({CAUSE}), restart 2 of 2",
        f"[agent 1]: fatal: rank 1 failed ({CAUSE}), no restart left of 2",
    ]
    assert sorted(line for line in reported if "for good" in line) == [
        f"[agent {other}]: fatal: node 1 has failed for good" for other in (0, 2)
    ]
    anew = "after a change of script or options: kitctl submit --name fails --replace ..."
    end = [
        f"job 'fails' failed: rank 1: {CAUSE}",
        "  node 1: rank 1 failed, no restart left of 2",
        "  Last lines of rank 1 on node 1:",
        "    looking for data",
        "fix: see kitctl logs fails --rank 1",
        f"then: kitctl restart fails starts it again; {anew}",
    ]
    assert errors.splitlines()[-6:] == [f"error: {end[0]}", *end[1:]]
    assert kit.run("wait", "fails", exit_code=100).splitlines() == ["fails: Failed", f"error: {end[0]}", *end[1:]]
    assert kit.run("logs", "-f", "fails", "--tail", "0").splitlines() == end

    job = kit.status("fails")
    assert [place["reason"] for place in job["nodes"]] == ["ended with node 1", "rank 1 failed", "ended with node 1"]
    failure = job["failure"]
    assert (failure["rank"], failure["node"], failure["error"]) == (1, 1, CAUSE)
    assert failure["lines"] == ["looking for data", "no data in /data/x"]
    page = kit.run("status", "fails")
    assert page.count(CAUSE) == 1
    assert "Failures   rank 1 of node 1, 2 times (as above)" in page
    (phase, *_) = json.loads(kit.start("doctor", "-o", "json", "fails").communicate()[0])["checks"]
    assert CAUSE in phase["message"]
    assert "status" not in phase["fix"]


def test_a_permanent_failure_is_not_retried_and_comes_with_its_fix(kit: Kit) -> None:
    (kit.folder / "train.py").write_text("import flash_attn\n")
    output = kit.run("submit", "--name", "lacks", "--nodes", "2", "--wait", "train.py", exit_code=100)
    _, found, end = output.rpartition("\nerror: ")  # a look before may have told it, too
    assert found
    assert re.match(r".* failed: rank [01]: ModuleNotFoundError: No module named 'flash_attn'\n", end)
    assert end.count("ModuleNotFoundError") == 1
    assert "failed, which no restart can fix" in output
    assert "fix: name a file with flash_attn as --requirements" in output
    assert "restart 1" not in kit.run("logs", "lacks")
    assert re.search(r"^Fix +name a file with flash_attn as --requirements", kit.run("status", "lacks"), re.MULTILINE)
    assert "fix: name a file with flash_attn as --requirements" in kit.run("doctor", "lacks", exit_code=1)


ANY_TEXT = """
import os, sys
os.write(1, b"\\xff\\x00" + b"x" * (1 << 20) + b"\\n" * 3)
name = os.fsdecode(b"data-\\xff") + "\\0" + "y" * (1 << 20)
source = "\\n" * 9_998 + "raise ValueError(name)"
exec(compile(source, os.fsdecode(b"lo\\xffder.py"), "exec"))
"""


@pytest.mark.wide
def test_a_failure_with_any_text_ends_the_job_and_is_shown(kit: Kit) -> None:
    (kit.folder / "train.py").write_text(ANY_TEXT)
    told = kit.run("submit", "--name", "texts", "--max-restarts", "1", "--wait", "train.py", exit_code=100)
    cause = "ValueError: data-?"
    assert "error: job 'texts' failed: rank 0: " in told
    assert cause in told
    assert cause in kit.run("status", "texts")
    assert f"[agent 0]: fatal: rank 0 failed ({cause}" in kit.run("logs", "texts", "--tail", "20")
    assert kit.status("texts")["failure"]["error"].startswith("ValueError: data-?")


@pytest.mark.wide
def test_a_file_that_was_not_sent_is_not_waited_for(kit: Kit) -> None:
    (kit.folder / "train.py").write_text("print('started')\nopen('data/x.csv')\n")
    told = kit.run("submit", "--name", "unsent", "--workdir", ".", "--wait", "train.py", exit_code=100)
    assert "rank 0 failed, which no restart can fix" in told
    assert "data/x.csv" in told
    assert kit.run("logs", "unsent").count("]: started") == 1


@pytest.mark.wide
def test_what_is_retried_is_told_at_its_first_failure(kit: Kit) -> None:
    (kit.folder / "train.py").write_text("import time\ntime.sleep(1)\nraise ValueError('no luck')\n")
    told = kit.run("submit", "--name", "told", "--max-restarts", "2", "--wait", "train.py", exit_code=100)
    assert told.count("(rank 0: ValueError: no luck)\n") == 1, "while it restarts"
    assert told.count("ValueError: no luck") == 2, "and at its end"


HIDES = """
import sys, traceback, torch.distributed as dist
dist.init_process_group("gloo")
try:
    {"input": 1}["inputs"]
except KeyError:
    if dist.get_rank() == 1:
        traceback.print_exc()
dist.barrier()
print("done")
"""


def test_a_script_that_hides_its_error_and_does_nothing_succeeds_with_a_note(kit: Kit) -> None:
    (kit.folder / "train.py").write_text(HIDES)
    note = "no optimizer step was seen; rank 1 printed a traceback, and ended with exit code 0: KeyError: 'inputs'"
    waited = kit.run("submit", "--name", "hides", "--nodes", "2", "--wait", "train.py")
    assert f"hides: Succeeded ({note})" in waited.splitlines()
    assert kit.run("why", "hides").splitlines() == [f"Succeeded; {note}"]
    assert re.search(rf"^Seen +{re.escape(note)}$", kit.run("status", "hides"), re.MULTILINE)
    assert note in kit.run("doctor", "hides"), "and exits with 0"
    job = kit.status("hides")
    assert (job["phase"], job["note"], job["reason"]) == ("Succeeded", note, "")
    assert "; rank 1 printed a traceback" in kit.run("logs", "hides", "--include", "agent")
