"""A rank whose collective does not end with its connections is replaced; real groups of two processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kittrain.rank.world import rounds
from tests.trainer.nodes import free_port

WITHOUT_LIBUV = """\
import sys
from datetime import timedelta
from types import SimpleNamespace
import torch
import torch.distributed as dist
from kittrain.rank.world.rounds import Rounds

address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2]}
env = SimpleNamespace(rank=int(sys.argv[1]), world_size=2)
Rounds(None, None).form(env, address, timeout=timedelta(seconds=60))
total = torch.ones(1)
dist.all_reduce(total)
print(f"{total.item()} ranks")
"""

RANK = """\
import os, queue, sys, threading, time
import torch
import torch.distributed as dist
from kittrain.rank.world import rounds

class Heartbeat:
    def left(self, number):
        pass

folder, rank, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", store=dist.FileStore(folder + "/store", 2), rank=rank, world_size=2)
if rank == 1:
    sys.stdin.read()  # never takes part
    os._exit(0)
own = rounds.Rounds(None, Heartbeat())
own.evaluates = place == "evaluation"
rounds.EVALUATION_SECONDS = 1.0
own._told = False  # its sockets are not shut down, as if gloo did not notice

def end():
    there.wait()
    time.sleep(1.0)
    print(place, rounds.waits_for_ranks(threading.main_thread().ident), flush=True)
    own._end(1)

there = threading.Event()
threading.Thread(target=end, daemon=True).start()
if place == "all_reduce":
    there.set()
    dist.all_reduce(torch.ones(1))
elif place == "backward":
    parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1), init_sync=False)
    loss = parallel(torch.ones(1, 1)).sum()
    there.set()
    loss.backward()
elif place == "sleep":
    there.set()
    time.sleep(30)
elif place == "samples":
    samples = iter(torch.utils.data.DataLoader([0], num_workers=1, worker_init_fn=lambda _: time.sleep(4)))
    there.set()
    next(samples)
elif place == "queue":
    there.set()
    try:
        queue.Queue().get(timeout=4)
    except queue.Empty:
        pass
elif place in {"computation", "evaluation"}:
    there.set()
    beginning = time.monotonic()
    while time.monotonic() < beginning + 4:
        torch.ones(1000).sum()
print("went on", flush=True)
os._exit(0)
"""

HOLDS = """\
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
import torch.distributed as dist
from kittrain.rank.world.rounds import CannotOutliveError, Rounds

what, renews, address = sys.argv[1], sys.argv[2] == "True", {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[3]}
own = Rounds(Path("absent"), SimpleNamespace(left=print, renew=lambda: None, beat=lambda phase: None))
own.start()
own.form(SimpleNamespace(rank=0, world_size=1), address, timeout=timedelta(seconds=60))
if what == "the default group":
    held = dist.group.WORLD
elif what == "another group":
    held = {"evaluation": dist.new_group([0])}
elif what == "a circle":
    held = [dist.new_group([0])]
    held.append(held)
    del held
else:
    dist.new_group([0])
own._next = {"RANK": "0"}
try:
    own.next(renews=renews)
    print("goes on")
except CannotOutliveError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("what", "renews", "goes_on"),
    [
        ("the default group", False, False),
        ("another group", False, False),
        pytest.param("another group", True, True, marks=pytest.mark.long),
        ("a circle", False, True),
        pytest.param("nothing", False, True, marks=pytest.mark.long),
    ],
)
def test_a_rank_does_not_outlive_a_group_that_its_script_holds(what: str, *, renews: bool, goes_on: bool) -> None:
    """A new rank would wait for the others in ``new_group()``, which those do not call who have one."""
    environ = {**os.environ, "TORCHELASTIC_USE_AGENT_STORE": "False", "USE_LIBUV": "0"}
    command = (sys.executable, "-c", HOLDS, what, str(renews), str(free_port()))
    told = subprocess.check_output(command, env=environ, text=True, timeout=120)
    assert told == (
        "goes on\n" if goes_on else "the script holds a process group of the last round: this rank is started anew\n"
    )


@pytest.mark.parametrize(
    ("place", "waits", "replaced"),
    [
        ("all_reduce", True, True),
        ("backward", True, True),
        pytest.param("sleep", False, True, marks=pytest.mark.long),
        pytest.param("computation", False, False, marks=pytest.mark.long),
        ("evaluation", False, True),
        ("samples", False, False),
        pytest.param("queue", False, False, marks=pytest.mark.long),
    ],
)
def test_a_rank_that_sleeps_although_its_round_is_over_is_replaced(
    tmp_path: Path, place: str, *, waits: bool, replaced: bool
) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(tmp_path), str(rank), place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        output, errors = ranks[0].communicate(timeout=60)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert f"{place} {waits}" in output
    assert ("went on" not in output) == replaced == ("did not end with it" in errors), errors
    assert ranks[0].returncode == replaced


WORKS = """\
import hashlib, threading, time
from kittrain.rank.world.rounds import others_work

threading.Thread(target=threading.Event().wait, daemon=True).start()
while others_work():  # torch's threads have yet to sleep
    time.sleep(0.01)
threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 10**9), daemon=True).start()
while not others_work():
    time.sleep(0.01)
print("works", flush=True)
__import__("os")._exit(0)
"""


def test_a_thread_that_has_yet_to_run_is_seen() -> None:
    assert subprocess.check_output([sys.executable, "-c", WORKS], timeout=120) == b"works\n"


def test_rank_0_hosts_the_store_of_a_round_where_an_agent_cannot() -> None:
    environ = {**os.environ, "TORCHELASTIC_USE_AGENT_STORE": "False", "USE_LIBUV": "0"}
    command = (sys.executable, "-c", WITHOUT_LIBUV)
    port = str(free_port())
    other = subprocess.Popen([*command, "1", port], stdout=subprocess.PIPE, text=True, env=environ)
    first = subprocess.run([*command, "0", port], stdout=subprocess.PIPE, text=True, env=environ, check=True)
    assert first.stdout == other.communicate(timeout=60)[0] == "2.0 ranks\n"


@pytest.mark.parametrize(
    ("file", "own"),
    [
        (f"{rounds.LIBRARY}queue.py", True),
        (f"{rounds.LIBRARY}multiprocessing/connection.py", True),
        (f"{rounds.LIBRARY}site-packages/torch/library.py", False),
        (f"{rounds.LIBRARY}dist-packages/loader.py", False),
        ("/code/train.py", False),
    ],
)
def test_what_waits_in_the_standard_library_waits_for_its_own(file: str, *, own: bool) -> None:
    """But not what is in an environment within it, which another one may see."""
    functions: dict[str, Any] = {}
    exec(compile("def wait(lock):\n    lock.acquire()", file, "exec"), functions)
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=functions["wait"], args=(lock,))
    thread.start()
    try:
        while rounds._file_of(thread.ident or 0) != file:
            time.sleep(0.001)
        assert rounds.waits_for_its_own(thread.ident or 0) == own
    finally:
        lock.release()
        thread.join()
