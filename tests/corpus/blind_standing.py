"""Situations of the blind sets in which a job stands still."""

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
_RETRIES: Final = (
    GROUP
    + """
import urllib.request
def fetch(url):
    attempt = 0
    while True:
        try:
            return urllib.request.urlopen(url, timeout=3).read()
        except OSError as error:
            attempt += 1
            print(f"WARNING fetch {url} failed: {error}; retrying in 2 s (attempt {attempt})", flush=True)
            time.sleep(2)
fetch("http://127.0.0.1:9/shards/index.json")
"""
)
_THREAD: Final = (
    DDP
    + """
import threading
def report():
    while True:
        time.sleep(3)
for i in range(10):
    step()
threading.Thread(target=report).start()
dist.destroy_process_group()
"""
)
_PRODUCER: Final = (
    DDP
    + """
import queue, threading
batches = queue.Queue(4)
def produce():
    for i in range(100):
        batches.put({"x": i}["input_ids"])
for i in range(5):
    step()
threading.Thread(target=produce, daemon=True).start()
while True:
    batches.get()
    step()
"""
)

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
    Situation(
        name="ranks sleep and form no group",
        script="import time\ndef wait_for_slot():\n    while True:\n        time.sleep(5)\nwait_for_slot()",
        cause=r"ranks 0-1 sleep at train\.py:4 in wait_for_slot",
        first=(False, False),
    ),
    Situation(
        name="a world of another size",
        script="import os\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo', 'tcp://127.0.0.1:23456', rank=int(os.environ['RANK']), world_size=8)",
        cause=r"ranks 0-1 (?:sleep|wait in init_process_group) at train\.py:3",
        first=(False, False),
    ),
    Situation(
        name="a request that is tried for ever",
        script=_RETRIES,
        cause=r"ranks 0-1 sleep at train\.py:\d+ in fetch; rank 0 says: .*Connection refu",
        first=(False, False),
    ),
    Situation(
        name="a thread that outlives its script",
        script=_THREAD,
        cause=r"ranks 0-1 have ended their script, but not their thread at train\.py:\d+ in report",
        first=(False, False),
    ),
    Situation(
        name="a thread that fills a queue has ended",
        script=_PRODUCER,
        cause=r"ranks 0-1 sleep at train\.py:\d+; rank 0 says: Exception in thread .*: KeyError: 'input_ids'",
        first=(False, False),
    ),
)
