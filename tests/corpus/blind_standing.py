"""Situations of the blind set in which a job stands still."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, Situation

_BUILD_LOCK: Final = """
import torch
from torch.utils.file_baton import FileBaton
def load_extension():
    baton = FileBaton("lock")
    if not baton.try_acquire():
        baton.wait()
load_extension()
"""

BLIND_STANDING: Final = (
    Situation(
        name="one rank has fewer batches and waits for the others",
        script=DDP + "for i in range(60 if rank else 90):\n    step()\ndist.barrier()",
        cause="rank 0 waits in all_reduce of its backward pass.*rank 1 waits in barrier",
        first=(False, False),
    ),
    Situation(
        name="a lock of a build that was killed",
        script=_BUILD_LOCK,
        files={"lock": ""},
        options=("--workdir", "."),
        cause=r"ranks 0-1 wait in FileBaton\.wait at train\.py:\d+ in load_extension",
        first=(False, False),
    ),
    Situation(
        name="rank 0 prepares data for longer than others wait",
        script=GROUP.replace('("gloo")', '("gloo", timeout=__import__("datetime").timedelta(seconds=12))')
        + "if rank == 0:\n    time.sleep(60)\ndist.barrier()",
        cause="rank 1 timed out in a collective",
        fix="longer timeout",
        first=(True, True),
    ),
)
