"""The message for each kind of failure, from scripts that really fail that way."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import NamedTuple

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from kittrain.agent.report.postmortem import Postmortem
from kittrain.outcome import rank_output
from kittrain.outcome.failures import Failure
from tests.trainer.warm_agents import warm_agent_server, warm_environ

pytestmark = pytest.mark.slow

LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        {bad}
        return torch.zeros(1)
for batch in DataLoader(Samples(), num_workers=1):
    pass
"""
MAPPED = """
import mmap, os
with open(__file__ + ".data", "wb+") as file:
    file.truncate(8192)
    memory = mmap.mmap(file.fileno(), 8192)
    os.ftruncate(file.fileno(), 0)
    def read():
        return memory[5000]
    read()
"""
SPAWNED = """
import torch.multiprocessing as mp
def work(rank):
    raise KeyError("no such shard")
if __name__ == "__main__":
    mp.spawn(work, nprocs=1, start_method="fork")
"""
LIMITED = """
import resource
import torch
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (2 << 30)  # torch builds differ by gigabytes of address space
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
{allocate}
"""


ILLEGAL = {"x86_64": "0f0b", "aarch64": "00000000"}[platform.machine()]


class Case(NamedTuple):
    script: str
    error: str  # the start of the message
    fix: str = ""  # part of the fix
    permanent: bool = False
    kind: str = "own"
    shown: str = ""  # in the traceback or the last lines


CASES = {
    "exit code": Case(
        "import sys\nprint('loading')\nprint('no data in /data/x', file=sys.stderr)\nsys.exit(3)",
        "exit code 3: no data in /data/x",
        shown="loading",
    ),
    "message": Case("raise SystemExit('no data in /data/x')", "SystemExit: no data in /data/x", shown="train.py"),
    "message, then others'": Case(
        "import atexit\natexit.register(print, 'bye')\nraise SystemExit('no data')", "SystemExit: no data", shown="bye"
    ),
    "at once": Case("import os\nprint('here', flush=True)\nos._exit(7)", "exit code 7: here"),
    "arguments": Case(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "for number in range(40):\n    parser.add_argument(f'--a-rather-long-option-{number}')\nparser.parse_args()",
        "exit code 2: train.py: error: unrecognized arguments: --epochs",
        "fix the arguments",
        permanent=True,
        shown="usage: train.py",
    ),
    "arguments of click": Case(
        "import click\n@click.command()\ndef main():\n    pass\nmain()",
        "exit code 2: Error: No such option",
        "fix the arguments",
        permanent=True,
    ),
    "exit code 2 of its own": Case("print('error: no')\nraise SystemExit(2)", "exit code 2: error: no"),
    "module": Case(
        "import flash_attn.layers", "ModuleNotFoundError: No module named 'flash_attn'", "flash_attn", permanent=True
    ),
    "syntax": Case("def step(:\n", "SyntaxError: invalid syntax", "fix the script", permanent=True),
    "library": Case(
        "import ctypes\ntry:\n    ctypes.CDLL('libcuda.so.1')\n"
        "except OSError as error:\n    raise ImportError(str(error))",
        "ImportError: libcuda.so.1: cannot open shared object file",
        "on nodes with the driver",
    ),
    "name": Case("undefined", "NameError: name 'undefined' is not defined", "define or import it", shown="line 1"),
    "interrupted": Case("import os, signal\nos.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt", "SIGINT"),
    "memory access": Case(
        "import ctypes\nprint('loaded')\ndef read():\n    return ctypes.string_at(0)\nread()",
        "killed by SIGSEGV at train.py:4 in read: invalid memory access in native code",
        "see the call in the stack",
        shown="Fatal Python error: Segmentation fault",
    ),
    "a mapping without memory": Case(
        MAPPED,
        "killed by SIGBUS at train.py:8 in read: mapped memory is not there: its file was truncated, or ",
        "sharedMemory",
    ),
    "an instruction": Case(
        f"import ctypes, mmap\nmemory = mmap.mmap(-1, 4096, prot=7)\nmemory.write(bytes.fromhex('{ILLEGAL}'))\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(memory))\nctypes.CFUNCTYPE(None)(at)()",
        "killed by SIGILL at train.py:5 in <module>: an instruction that this CPU does not support",
        "another CPU",
    ),
    "a division": Case(
        "import os, signal\nos.kill(os.getpid(), signal.SIGFPE)",
        "killed by SIGFPE at train.py:2 in <module>: division by zero in native code",
        "see the call in the stack",
    ),
    "given up": Case(
        "import os\nos.write(2, b'terminate called: out of cheese\\n')\nos.abort()",
        "killed by SIGABRT at train.py:3 in <module>: native code aborted",
        "see the call in the stack",
        shown="out of cheese",
    ),
    "NCCL's watchdog": Case(
        "import os\nos.write(2, b'[rank0]:[E1122 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE) ran for 600010 milliseconds.\\n')\nos.abort()",
        "killed by SIGABRT",
        kind="peer",
    ),
    "NCCL's watchdog of a broken call": Case(
        "import os\nos.write(2, b'[Rank 0] NCCL watchdog thread terminated with exception: CUDA error: device-side "
        "assert triggered\\n')\nos.abort()",
        "killed by SIGABRT",
        "CUDA_LAUNCH_BLOCKING",
    ),
    "killed": Case("import os\nos.kill(os.getpid(), 9)", "killed by SIGKILL", "it was sent from outside"),
    "a signal without a name": Case("import os\nos.kill(os.getpid(), 40)", "killed by "),
    "memory of Python": Case(LIMITED.format(allocate="bytearray(8 << 30)"), "MemoryError", "resources.limits.memory"),
    "memory of torch": Case(
        LIMITED.format(allocate="torch.zeros(8 << 30)"), "RuntimeError: [enforce fail at", "resources.limits.memory"
    ),
    "the data loader's sample": Case(
        LOADER.format(bad="raise KeyError('label')"), "KeyError: 'label' (in DataLoader worker process 0)"
    ),
    "the data loader's memory access": Case(
        LOADER.format(bad="import os; os.kill(os.getpid(), 7)"),
        "RuntimeError: DataLoader worker was killed by signal: Bus error (/dev/shm has ",
        "sharedMemory",
        shown="Bus error",
    ),
    "the data loader killed": Case(
        LOADER.format(bad="import os; os.kill(os.getpid(), 9)"),
        "RuntimeError: DataLoader worker was killed by signal: Killed",
        "resources.limits.memory",
    ),
    "a child process": Case(SPAWNED, "KeyError: 'no such shard'", shown="-- Process 0 terminated"),
    "disk": Case(
        "with open('/dev/full', 'w') as file:\n    file.write('x' * 100000)",
        "OSError: [Errno 28] No space left on device",
        "free space",
    ),
    "port": Case(
        "import socket\na = socket.create_server(('127.0.0.1', 0))\nsocket.create_server(a.getsockname())",
        "OSError: [Errno 98] Address already in use",
        "let the system choose the port",
    ),
    "open files": Case(
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
        "kept = [open('/dev/null') for _ in 'x' * 30]",
        "OSError: [Errno 24] Too many open files",
        "ulimit -n",
    ),
    "bar": Case(
        "import sys\nsys.stderr.write('\\r 1/9 [=>  ]\\r 2/9 [\\x1b[31m==> \\x1b[0m]\\x07')\nsys.exit(4)",
        "exit code 4: 2/9 [==> ]",
    ),
}


def end_of(folder: Path, script: str) -> Failure:
    """The failure of a rank that runs this script, as its agent reports it."""
    (folder / "train.py").write_text(script)
    (folder / "output").touch()
    postmortem = Postmortem()
    env = {**warm_environ(), "TORCHELASTIC_ERROR_FILE": str(folder / "error.json")}
    rank = warm_agent_server().start([str(folder / "train.py"), "--epochs", "5"], env, folder / "output")
    code = rank.wait(timeout=120)
    record = ProcessFailure(0, rank.pid, code, str(folder / "error.json"))
    return postmortem.failure(5, record, (folder / "output").read_text().splitlines())


@pytest.mark.parametrize("name", CASES)
def test_a_rank_that_fails(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    failure = end_of(tmp_path, case.script)
    shown = "\n".join((failure.error, failure.traceback, *failure.lines))
    assert failure.error.startswith(case.error), shown
    assert case.shown in shown
    assert (failure.kind, failure.cause.permanent) == (case.kind, case.permanent), shown
    assert case.fix in failure.cause.fix, shown
    assert bool(case.fix) == bool(failure.cause.fix), failure.cause
    assert len(failure.lines) <= rank_output.LINES
