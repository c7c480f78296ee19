"""The table of causes, with messages as observed; ``agent/report/test_postmortem.py`` provokes those that it can."""

from __future__ import annotations

from typing import Final

import pytest

from kittrain.outcome.causes import CAUSES, UNKNOWN, Kind, cause_of
from tests.strangers import STRANGERS

GLOO = "RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:545] "
NCCL = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, "
WATCHDOG = "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] "


NEEDS_GPU: Final = (
    r"^[\w.]+: .*(requires at least one CUDA device|is only supported with GPUs"
    r"|assigned backend nccl is not available|Nccl backend is required but no cuda)"
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("hang: rank 2 (node 1) has been in all_reduce for 40 s", "hang"),
        ("killed by SIGKILL", "own"),
        ("exit code 3", "own"),
        ("ValueError: nothing to learn from", "own"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data'", "own"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied", "own"),
        (GLOO + "Connection closed by peer [127.0.0.1]:26211", "peer"),
        (GLOO + "Read error [127.0.0.1]:45266: Connection reset by peer", "peer"),
        (GLOO + "Timed out waiting 1800000ms for recv operation to complete", "peer"),
        ("RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error", "peer"),
        ("torch.distributed.DistNetworkError: The client socket has timed out", "peer"),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen: EADDRINUSE", "own"),
        ("DistStoreError: wait timeout after 15000ms, keys: /worker/0", "peer"),
        ("DistBackendError: NCCL error: remote process exited; ncclRemoteError", "peer"),
        ("DistBackendError: NCCL error in init, invalid usage; ncclInvalidUsage: Duplicate GPU", "own"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "peer"),
        ("OSError: [Errno 28] No space left on device", "own"),
        ("URLError: <urlopen error [Errno 111] Connection refused>", "own"),
        ("requests.exceptions.ConnectTimeout: HTTPConnectionPool(host='x', port=80): timed out", "own"),
        ("ConnectionError: HTTPConnectionPool(host='x', port=80): Max retries exceeded with url: /m", "own"),
        ("ConnectionError: Error 111 connecting to localhost:6379. Connection refused.", "own"),
        ("ConnectionError: Couldn't reach 'squad' on the Hub", "own"),
        ("ConnectionError: the peer is gone", "peer"),
        ("DistributionError: not torch's", "own"),
        ("DistStoreError: use_libuv was requested but PyTorch was built without libuv support", "own"),
        ("StorageUnavailableError: [Errno 5] Input/output error: '/s'; tried 11 times in 60 s", "storage"),
        ("StorageUnavailableError: [Errno 24] Too many open files: '/s'; tried 11 times in 60 s", "storage"),
    ],
)
def test_the_kind_of_an_error(error: str, kind: Kind) -> None:
    assert cause_of(error).kind == kind


def test_the_port_of_the_ranks_own_store_is_another_one_in_the_next_round_and_that_of_the_scripts_is_not() -> None:
    error = "torch.distributed.DistNetworkError: The server socket has failed to listen: EADDRINUSE"
    frames = '  File "/lib/python3.11/site-packages/torch/distributed/rendezvous.py", line 189, in _create_c10d_store\n'
    assert cause_of(error, traceback=frames).kind == "peer"
    assert cause_of(error, traceback='  File "/job/train.py", line 13, in status_store\n').kind == "own"


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...", "a smaller batch"),
        ("RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be", "CUDA_LAUNCH_BLOCKING"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "CUDA_LAUNCH_BLOCKING"),
        ("RuntimeError: CUDA error: out of memory", "a smaller batch"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "a smaller batch"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "take the machine out of use"),
        (NCCL + "unhandled cuda error; ncclUnhandledCudaError: Call to CUDA function failed.", "CUDA_LAUNCH_BLOCKING"),
        (NCCL + "ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1", "its own GPU"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "another build"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "device='cpu'"),
        ("RuntimeError: nccl2 requires at least one CUDA device", "--gpus-per-node N"),
        ("ValueError: Your assigned backend nccl is not available, please use gloo", "use the backend gloo"),
        ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "backend gloo"),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "backend gloo"),
        ("RuntimeError: Distributed package doesn't have Gloo built in", "choose an image whose torch has gloo"),
        ("RuntimeError: unable to write to file </torch_12_3>: No space left on device (28)", "sharedMemory"),
        ("RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2>: Success (0)", "sharedMemory"),
        ("killed by SIGKILL: out of memory: the limit is 512 MiB", "resources.limits.memory"),
        ("killed by SIGKILL", "from outside"),
        ("OSError: [Errno 122] Disk quota exceeded: '/snapshots/x'", "free space"),
        ("OSError: [Errno 30] Read-only file system: 'runs'", "/tmp"),
        (
            "SnapshotError: no snapshots can be written to /kit/snapshots: [Errno 30] Read-only file system: '/kit/x'",
            "snapshots.enabled: false",
        ),
        (
            "kittrain.x.SnapshotError: no snapshots can be written to /kit: [Errno 13] Permission denied: '/kit/x'",
            "security.fsGroup",
        ),
        (
            "SnapshotError: the trained model cannot be written to /kit: [Errno 30] Read-only file system: '/kit/x'",
            "continues from its last snapshot",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", "--send data/train.bin"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'out/state.bin'",
            "$KIT_SNAPSHOT_DIR, which all nodes",
        ),
        (
            "ValueError: Can't find a valid checkpoint at out/checkpoint-10",
            "out/checkpoint-10 is in each node's own copy",
        ),
        ("ValueError: Can't find a valid checkpoint at /data/checkpoint-10", ""),
        ("RuntimeError: received 0 items of ancdata", "set_sharing_strategy"),
        ("ModuleNotFoundError: No module named 'a.b'", "name a file with a.b as --requirements"),
        ("torch.distributed.DistNetworkError: failed to listen, name: EADDRINUSE", "one rank alone is_master"),
        ("KeyError: 'ECC'", ""),
    ],
)
def test_the_fix_of_an_error(error: str, fix: str) -> None:
    found = cause_of(error).fix
    assert fix in found
    assert bool(fix) == bool(found)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000)",
            "peer",
        ),
        ("NCCL watchdog thread terminated with exception: NCCL error: remote process exited", "peer"),
        ("ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress", "peer"),
        ("NCCL watchdog thread terminated with exception: CUDA error: device-side assert triggered", "own"),
        ("NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered", "own"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "own"),
    ],
)
def test_the_kind_of_an_abort_depends_on_the_last_lines(line: str, kind: Kind) -> None:
    assert cause_of("killed by SIGABRT", ("before", WATCHDOG + line, "after")).kind == kind


def test_lines_before_an_exception_do_not_count() -> None:
    lines = ("CUDA out of memory: trying a smaller batch", "[c10d] Connection reset by peer")
    assert cause_of("ValueError: x", lines) is UNKNOWN
    assert cause_of("exit code 3", lines).fix.startswith("a smaller batch")


def test_lines_do_not_count_as_a_lost_peer_except_for_an_abort() -> None:
    assert cause_of("exit code 3", ("data server: Connection reset by peer",)) is UNKNOWN


CHILD = """Traceback (most recent call last):
  File "/tmp/kit-workdir/train.py", line 6, in <module>
    for batch in torch.utils.data.DataLoader(Images(), num_workers=2):
  File "/usr/lib/python3.14/multiprocessing/connection.py", line 417, in _recv
    chunk = read(handle, to_read)
ConnectionResetError: [Errno 104] Connection reset by peer
"""


def test_a_process_of_the_script_s_own_that_has_ended_is_no_lost_peer() -> None:
    """Else it would be started again a hundred times, as if the network were at fault."""
    error = CHILD.splitlines()[-1]
    assert (cause_of(error).kind, cause_of(error, traceback=CHILD).kind) == ("peer", "own")
    assert "__main__" in cause_of(error, traceback=CHILD).fix
    server = CHILD.replace("    chunk", '    chunk\n  File "/data/client.py", line 3, in get\n    ')
    assert cause_of(error, traceback=server).kind == "peer"


def test_permanent_causes() -> None:
    assert {row.pattern for row in CAUSES if row.permanent} == {
        r"^([\w.]+\.)?NonFiniteLossError: ",
        r"^([\w.]+\.)?NoRoomError: ",
        r"^([\w.]+\.)?SnapshotError: .*no node that is left has (some of its parts|a part of any)",
        r"^ModuleNotFoundError: No module named '([^'.]+)[^']*' \(it is in (\S+), which is not in sys\.path\)",
        r"^ModuleNotFoundError: No module named '([^']+)'",
        r"^(SyntaxError|IndentationError|TabError): ",
        r"^ImportError: (cannot import name|attempted relative import)",
        r"^ImportError: (No module named \S+\.__main__: |\S+ has no Python code)",
        r"(?im)^exit code 2\b.*^usage: .*^(\S+: )?error: ",
        NEEDS_GPU,
        r"^[\w.]+: .*doesn't have NCCL built in",
        r"^[\w.]+: .*doesn't have Gloo built in",
        r"^[\w.]+: .*Found no NVIDIA driver",
        (
            r"^([\w.]+\.)?SnapshotError: no snapshots can be written to .*"
            r"(Read-only file system|Permission denied|Operation not permitted)"
        ),
    }
    assert not cause_of("exit code 3", ("RuntimeError: Found no NVIDIA driver", "UserWarning: x")).permanent
    for error in ("ImportError: libx.so: cannot open", "NameError: name 'x' is not defined", "exit code 2: error: x"):
        assert not cause_of(error, ("error: x",)).permanent


def test_an_error_of_the_documentation_leads_to_its_row() -> None:
    for row in CAUSES:
        error, *lines = row.seen.split("\n")
        assert not row.seen or row.called or cause_of(error, lines).pattern == row.pattern
    assert {row.kind for row in CAUSES if not row.seen} == {"peer"}


@pytest.mark.parametrize("error", [error for error in STRANGERS if not error.startswith("FileNotFoundError: ")])
def test_an_error_of_a_scripts_own_is_none_of_torchs(error: str) -> None:
    assert cause_of(error) is UNKNOWN


def test_an_interrupt_that_the_script_raises_is_no_signal() -> None:
    raised = 'Traceback ...:\n  File "/job/train.py", line 3, in <module>\n    raise KeyboardInterrupt\n'
    came = raised.replace("raise KeyboardInterrupt", "step()")
    assert cause_of("KeyboardInterrupt:", traceback=raised) is UNKNOWN
    assert all("SIGINT" in cause_of("KeyboardInterrupt:", traceback=one).fix for one in (came, ""))
