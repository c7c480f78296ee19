from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kittrain.system.priority import AUTOGROUP

PROGRAM = """\
import os
from kittrain.system.priority import AUTOGROUP, yield_to_training
yield_to_training(7)
group = AUTOGROUP.read_text() if AUTOGROUP.exists() else ""
print(os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0) == os.getpid(), group)
"""


@pytest.mark.parametrize("leads", [False, True])
def test_a_process_and_its_session_yield_to_others(*, leads: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, process_group=0 if leads else None
    )
    nice, alone, group = done.stdout.split(" ", 2)
    assert int(nice) == min(os.getpriority(os.PRIO_PROCESS, 0) + 7, 19)
    assert alone == str(not leads)
    assert not AUTOGROUP.exists() or group.strip().endswith("nice 7") == (not leads)
