"""Locating a main thread in faulthandler's output."""

from __future__ import annotations

import multiprocessing.queues
import multiprocessing.synchronize
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kittrain
from kittrain.agent.rendezvous import stacks
from kittrain.agent.rendezvous.stacks import Location, locate

TORCH = str(Path(torch.__file__).parent)
TRAINER = str(Path(kittrain.__file__).parent)
THREADS = f'Thread 0x00007fa061e506c0 (most recent call first):\n  File "{threading.__file__}", line 331 in wait\n\n'

WAIT_TENSOR = (
    f'"{TORCH}/_ops.py", line 926 in redispatch',
    f'"{TORCH}/_library/autograd.py", line 147 in autograd_impl',
    f'"{TORCH}/distributed/_functional_collectives.py", line 143 in wait_tensor',
)


def printed(*frames: str) -> list[str]:
    head = "Current thread 0x00007fa12a7d9b80 (most recent call first):"
    return [*THREADS.splitlines(), head, *(f"  File {frame}" for frame in frames), "", "a line of the script"]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (
            (
                f'"{TORCH}/autograd/graph.py", line 1113 in _engine_run_backward',
                f'"{TORCH}/_tensor.py", line 623 in backward',
                f'"{TRAINER}/training/loop.py", line 117 in _learn',
                '"/home/me/train.py", line 18 in <module>',
            ),
            Location(wait="the gradients' all-reduce", line="train.py:18 in <module>"),
        ),
        (
            (
                f'"{TORCH}/distributed/rendezvous.py", line 198 in _create_c10d_store',
                f'"{TORCH}/distributed/rendezvous.py", line 280 in _env_rendezvous_handler',
                '"/home/me/train.py", line 8 in <module>',
            ),
            Location(wait="init_process_group", line="train.py:8 in <module>"),
        ),
        (
            (
                f'"{TORCH}/distributed/distributed_c10d.py", line 3000 in broadcast',
                f'"{TORCH}/distributed/c10d_logger.py", line 83 in wrapper',
                f'"{TORCH}/distributed/distributed_c10d.py", line 3700 in broadcast_object_list',
                f'"{TORCH}/distributed/c10d_logger.py", line 83 in wrapper',
                '"/home/me/my model.py", line 4 in share',
            ),
            Location(wait="broadcast_object_list", line="my model.py:4 in share"),
        ),
        (
            (
                *WAIT_TENSOR,
                f'"{TORCH}/distributed/_functional_collectives.py", line 1247 in wait',
                f'"{TORCH}/distributed/tensor/_redistribute.py", line 1841 in redistribute_local_tensor',
                f'"{TORCH}/distributed/tensor/_api.py", line 813 in redistribute',
                f'"{TORCH}/distributed/_state_dict_utils.py", line 276 in dtensor_func',
                f'"{TORCH}/distributed/_state_dict_utils.py", line 288 in _gather_state_dict',
                f'"{TORCH}/distributed/checkpoint/state_dict.py", line 99 in get_model_state_dict',
                '"/home/me/train.py", line 25 in main',
            ),
            Location(wait="the gathering of a state dict", line="train.py:25 in main"),
        ),
        (
            (
                *WAIT_TENSOR,
                f'"{TORCH}/distributed/tensor/_redistribute.py", line 1841 in redistribute_local_tensor',
                f'"{TORCH}/distributed/tensor/_api.py", line 813 in full_tensor',
                '"/home/me/train.py", line 25 in main',
            ),
            Location(wait="an exchange of a DTensor's parts", line="train.py:25 in main"),
        ),
        (
            (*WAIT_TENSOR, f'"{TORCH}/utils/_pytree.py", line 1711 in wrapped', '"/home/me/train.py", line 2 in main'),
            Location(wait="a functional collective", line="train.py:2 in main"),
        ),
        (  # copies the parts that are here
            (
                f'"{TORCH}/_ops.py", line 1350 in __call__',
                f'"{TORCH}/distributed/tensor/_redistribute.py", line 1841 in redistribute_local_tensor',
                '"/home/me/train.py", line 2 in main',
            ),
            Location(line="train.py:2 in main"),
        ),
        (
            ('"/home/me/data.py", line 12 in __getitem__', f'"{TORCH}/utils/data/_utils/fetch.py", line 54 in fetch'),
            Location(line="data.py:12 in __getitem__"),
        ),
        (
            (f'"{threading.__file__}", line 331 in wait', f'"{TRAINER}/agent/processes/worker.py", line 52 in run'),
            Location(line="threading.py:331 in wait"),
        ),
        (
            (f'"{TRAINER}/workloads/toy.py", line 57 in loss', f'"{TRAINER}/training/loop.py", line 114 in _learn'),
            Location(line="toy.py:57 in loss"),
        ),
    ],
)
def test_the_main_thread_is_in_a_collective_or_in_user_code(frames: tuple[str, ...], expected: Location) -> None:
    assert locate(printed(*frames)) == expected


@pytest.mark.parametrize(
    ("frame", "tries"),
    [
        (f'"{socket.__file__}", line 850 in create_connection', True),
        ('"/v/lib/python3.11/site-packages/urllib3/util/retry.py", line 378 in _sleep_backoff', True),
        ('"/v/lib/python3.11/site-packages/huggingface_hub/utils/_http.py", line 310 in http_backoff', True),
        (f'"{socket.__file__}", line 718 in readinto', False),  # bytes arrive
        ('"/home/me/socket.py", line 3 in connect', False),
    ],
)
def test_a_rank_that_connects_or_waits_to_try_that_again(frame: str, *, tries: bool) -> None:
    calls = ('"/v/lib/python3.11/site-packages/requests/api.py", line 59 in get', '"/home/me/train.py", line 4 in load')
    assert locate(printed(frame, *calls)) == Location(
        line="socket.py:3 in connect" if "/me/socket" in frame else "train.py:4 in load", tries=tries
    )


@pytest.mark.parametrize(
    ("waits", "what"),
    [
        ("subprocess.run(SLEEP, capture_output=True)", "a process"),
        ("begun(multiprocessing.Process).join()", "a process"),
        ("begun(threading.Thread).join()", "a thread"),
        ("threading.Event().wait(60)", "an event"),
        ("queue.Queue().get()", "a queue"),
        ("[full := queue.Queue(1), full.put(1), full.put(2)]", "room in a queue"),
        ("multiprocessing.Queue().get()", "a queue"),
        ("concurrent.futures.ThreadPoolExecutor().submit(time.sleep, 60).result()", "a future"),
        ("concurrent.futures.wait([concurrent.futures.ThreadPoolExecutor().submit(time.sleep, 60)])", "a future"),
        ("multiprocessing.Pool(1).map(time.sleep, [60])", "a pool of processes"),
        ("next(multiprocessing.Pool(1).imap(time.sleep, [60]))", "a pool of processes"),
        ("torch.multiprocessing.spawn(time.sleep)", "its processes"),
        ("time.sleep(60)", ""),
    ],
)
def test_what_a_rank_has_begun_itself_is_named_where_it_waits_for_that(tmp_path: Path, waits: str, what: str) -> None:
    """The real frames of this Python."""
    script = tmp_path / "train.py"
    script.write_text(
        "import concurrent.futures, faulthandler, multiprocessing, os, queue, subprocess, sys, threading, time\n"
        + "import torch.multiprocessing\n" * ("torch" in waits)
        + "SLEEP = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "def begun(kind):\n"
        "    one = kind(target=time.sleep, args=(60,), daemon=True)\n"
        "    one.start()\n"
        "    return one\n"
        "if __name__ == '__main__':\n"
        "    faulthandler.dump_traceback_later(0.5, repeat=True)\n"
        f"    {waits.replace('spawn(time.sleep)', 'spawn(time.sleep, nprocs=1)')}\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as rank:
        try:
            assert rank.stderr
            lines = iter(rank.stderr.readline, "")
            found = None
            while found is None or found.awaits != what:  # it may not have come there yet
                dump = [next(line for line in lines if line.startswith("Timeout"))]
                while "train.py" not in dump[-1]:
                    dump.append(next(lines))
                found = locate(dump)
        finally:
            os.killpg(rank.pid, signal.SIGKILL)


def test_the_frames_of_a_connection_are_those_of_this_python_and_of_urllib3() -> None:
    packages = Path(TORCH).parent
    for file, function in stacks.TRIES:
        source = packages / file[1:] if "/" in file[1:] else Path(socket.__file__)
        assert not source.exists() or f"def {function}(" in source.read_text(), f"{function} in {source}"


@pytest.mark.parametrize(
    ("line", "wait"),
    [
        ("store = dist.TCPStore(HOST, 28761, world)", "TCPStore"),
        ("return TCPStore(", "TCPStore"),
        ("time.sleep(3)  # for TCPStore", ""),
        ("store = MyTCPStore(HOST)", ""),
        ("", ""),  # the file cannot be read
    ],
)
def test_native_code_that_waits_is_known_by_the_line_that_calls_it(line: str, wait: str) -> None:
    frames = ('"/home/me/train.py", line 23 in connect', '"/home/me/train.py", line 40 in <module>')
    found = locate(printed(*frames), lambda *place: line if place == ("/home/me/train.py", 23) else "")
    assert found is not None
    assert replace(found, code="") == Location(wait=wait, line="train.py:23 in connect")
    assert locate(printed(*frames)) == Location(line="train.py:23 in connect")
    within = ('"/home/me/.venv/lib/python3.11/site-packages/hub/client.py", line 3 in get', *frames)
    found = locate(printed(*within), lambda *_: line)
    assert found is not None
    assert replace(found, code="") == Location(line="train.py:23 in connect")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("    fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time\n", "fcntl.flock(lock, fcntl.LOCK_EX)"),
        ("  with FileLock('/mnt/shared/cache.lock'):\n", "with FileLock('…'):"),
        (
            'requests.get(url, headers={"Authorization": "Bearer 0123456789"})',
            'requests.get(url, headers={"Authorization": "…"})',
        ),
        ("f(`x`)", "f(x)"),
        ("f(" + 70 * "x" + ")", "f(" + 57 * "x" + "…"),
        ("", ""),
    ],
)
def test_what_is_written_where_a_rank_is_names_what_it_waits_for(line: str, code: str) -> None:
    found = locate(["Thread 0x1 (most recent call first):", '  File "/code/train.py", line 5 in main'], lambda *_: line)
    assert found is not None
    assert found.code == code


def test_without_a_stack_there_is_no_location() -> None:
    assert locate(["step 3 loss 0.5"]) is None


def test_all_known_frames_exist_in_this_torch() -> None:
    root = Path(TORCH).parent
    for file, function, _ in stacks.WAITS:
        source = (Path(TRAINER).parent if file.startswith("kittrain/") else root) / file
        assert not function or f"def {function}(" in source.read_text(), f"{function} in {source}"
    assert all((root / file).exists() for file, _ in stacks.MAKES_WAIT)
    assert all((root / file).exists() for file in stacks.WRAPPERS)
    assert sys.modules["torch.distributed.c10d_logger"].__file__ == f"{root}/{stacks.WRAPPERS[0]}"


def test_a_script_that_is_over_but_for_an_exit_handler_is_in_that() -> None:
    ends = f'"{TRAINER}/system/after_fork.py", line 85 in run_and_exit'
    runs = f'"{TRAINER}/agent/processes/worker.py", line 52 in main'
    handler = '"/home/me/train.py", line 9 in upload'
    assert locate(printed(handler, ends)) == Location(line="train.py:9 in upload", exits="exit handler")
    assert locate(printed(ends)) == Location(exits="exit handler")
    assert locate(printed(handler, runs, ends)) == Location(line="train.py:9 in upload")


def test_a_script_that_is_over_but_for_a_thread_is_where_that_one_is() -> None:
    thread = 'Thread 0x00007fa061e506c0 (most recent call first):\n  File "/home/me/train.py", line 23 in report'
    rest = (
        f'"{TRAINER}/agent/processes/worker.py", line 9 in run',
        '"/x/kitctl/targets/local/shim.py", line 62 in main',
    )
    shutdown = f'"{threading.__file__}", line 1590 in _shutdown'
    assert locate([*thread.splitlines(), *printed(shutdown, *rest)]) == Location(
        line="train.py:23 in report", exits="thread"
    )
    assert locate(printed(shutdown, *rest)) == Location(line="", exits="thread")
    script = '"/home/me/train.py", line 3 in <module>'
    assert locate(printed(script, *rest)) == Location(line="train.py:3 in <module>")


@pytest.mark.parametrize(
    ("innermost", "waits"),
    [
        ('"/home/me/train.py", line 18 in log', True),
        (f'"{TORCH}/nn/functional.py", line 2 in linear', True),
        (f'"{multiprocessing.synchronize.__file__}", line 95 in __enter__', False),
        (f'"{multiprocessing.queues.__file__}", line 103 in get', False),
        (f'"{threading.__file__}", line 331 in wait', False),
    ],
)
def test_what_a_fork_waits_for_is_a_thread_of_its_own_unless_processes_share_it(innermost: str, waits: bool) -> None:  # noqa: FBT001
    stack = ["Stack (most recent call first):", f"  File {innermost}", '  File "/home/me/train.py", line 9 in f']
    assert stacks.waits_for_a_thread(stack, lambda *_: "    with lock:") == waits
    assert not stacks.waits_for_a_thread(stack, lambda *_: "    lock.acquire()"), "it may be one of processes"
    assert not stacks.waits_for_a_thread([], lambda *_: "")
