"""The table of failure causes: whose fault an error is, how to fix it, and whether a restart can help. Pure.

The first matching row applies. Each row is tested with a message in which it was observed.

Why: decision 33.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

Kind = Literal["own", "left", "hang", "drained", "storage", "peer", "stopped"]

_MEMORY: Final = (
    "raise resources.limits.memory, or use less: fewer data loader workers, smaller batches, files that are read on "
    "demand"
)
_SHARED: Final = "raise sharedMemory (and the memory limit, which it counts towards), or use fewer data loader workers"
_LOADER: Final = (
    f"{_MEMORY}; if its own error above speaks of bootstrapping, the script needs: if __name__ == '__main__':"
)
_GPU: Final = "the GPU of this machine or its driver is faulty: take the machine out of use, and restart the job"
_NO_DRIVER: Final = (
    "request GPUs (--gpus-per-node N) on nodes with the driver and NVIDIA's container runtime; or let the script use "
    "device='cpu'"
)
_DRIVER: Final = (
    "the container has no matching NVIDIA driver: request GPUs (gpusPerNode), and check that the machine has the "
    "driver and NVIDIA's container runtime"
)
_NATIVE: Final = "see the call in the stack; look for a library that was built for another version of Python or torch"


@dataclass(frozen=True)
class Cause:
    """One row.

    Attributes:
        code: its stable name, as people count causes; one cause has the same in all tables.
        pattern: searched in a rank's error and, for an ``own`` failure without an error message, in its last lines.
        kind: whose fault it is.
        fix: what the user can do; ``{0}`` is the pattern's first group. Empty if the error says enough.
        permanent: whether a restart cannot help.
        deterministic: whether another restart cannot help if the same failure follows the first.
        of_code: whether it depends on the script alone: a second one at the same place, after as many steps, is no
            accident.
        called: what the traceback has to have, too.
        seen: an error as people see it, for the documentation; empty for one of several that tell of lost peers.
    """

    code: str
    pattern: str
    kind: Kind = "own"
    fix: str = ""
    permanent: bool = False
    deterministic: bool = False
    of_code: bool = False
    called: str = ""
    seen: str = ""


# Exception types are torch's; texts are those of Python, gloo, NCCL, CUDA, TCPStore and the kernel.
CAUSES: Final[tuple[Cause, ...]] = (
    Cause(
        "rank-or-world-size-overridden",
        r"^hang: .* although all ranks of this job are there: it is told of others",
        "hang",
        fix="leave out rank and world_size of init_process_group, and what sets RANK and WORLD_SIZE: kitctl does",
        deterministic=True,
        seen="hang: ranks 0-1 have been in init_process_group for 900 s, at train.py:2, although all ranks of this job "
        "are there: it is told of others",
    ),
    Cause(
        "rank-hang",
        r"^hang: ",
        "hang",
        seen="hang: rank 2 (node 1) has been in the forward pass of step 30 for 30 s, at train.py:12",
    ),  # the hub's message
    Cause(
        "rank-ended-before-others",
        r"^ended with exit code 0 at ",  # kittrain.agent.report.departures
        "left",
        fix="all ranks have to take the same number of steps, and end together: look for a condition that differs "
        "between them, such as a checkpoint that only one rank's folder has, or a rank's share of the data",
        seen="ended with exit code 0 at 12:00:03 UTC, 3 s before rank 1 lost it",
    ),
    Cause(
        "rank-ended-during-collective",
        r"^finished the collective in which rank \d+ lost it, ",  # likewise
        "left",
        fix="give the same function, shape and type to the last collective on all ranks, as by padding a last, shorter "
        "batch; if they are the same, let the ranks end together: dist.barrier() at the end of the script",
        seen="finished the collective in which rank 1 lost it, and ended with exit code 0 at 12:00:03 UTC",
    ),
    Cause(
        "collective-mismatch",
        r"^called .*, where rank \d+ called ",  # likewise
        "left",
        fix="all ranks have to call the same collectives in the same order, with tensors of the same shape and type: "
        "look for a condition that differs between them, as one that leaves out a backward pass, and for a last, "
        "shorter batch",
        seen="called all_reduce of [2] float32, where rank 0 called all_reduce of [1] float32",
    ),
    Cause(
        "snapshot-storage-unavailable",
        r"^StorageUnavailableError: ",  # before the rows that match the system's message in it
        "storage",
        fix="check the volume of the path in the message; if one snapshot can no longer be read, move its folder away: "
        "the one before it is used",
        seen="StorageUnavailableError: [Errno 5] Input/output error: '/kit/snapshots'; tried 11 times in 60 s",
    ),
    Cause(
        "snapshot-folder-not-writable",
        r"^([\w.]+\.)?SnapshotError: no snapshots can be written to .*"
        r"(Read-only file system|Permission denied|Operation not permitted)",
        fix="make the snapshots' volume writable for the job's user: see how it is mounted, the claim's access mode, "
        "security.fsGroup, and the machine's kernel log if a disk has become read-only; snapshots.enabled: false "
        "trains without snapshots",
        permanent=True,
        seen="SnapshotError: no snapshots can be written to /kit/snapshots: [Errno 30] Read-only file system: ...",
    ),
    Cause(
        "snapshot-storage-full",  # the ranks have waited: a restart would lose what they hold, and come here again
        r"^([\w.]+\.)?NoRoomError: ",
        fix="free space at the path in the message, or use a larger volume (snapshots.size, of memory or of a claim), "
        "and start the job again: it continues from its last snapshot",
        permanent=True,
        seen="NoRoomError: the trained model cannot be written to /kit/snapshots: [Errno 28] No space left on device",
    ),
    Cause(
        "no-whole-snapshot-left",  # all nodes are there, and none has it
        r"^([\w.]+\.)?SnapshotError: .*no node that is left has (some of its parts|a part of any)",
        fix="start over: --from-scratch; with snapshots.mirror the next job goes on from a bucket when that happens",
        permanent=True,
        seen="SnapshotError: no snapshot in /kit/snapshots is usable, ...: no node that is left has some of its parts",
    ),
    Cause(
        "trained-model-not-writable",
        r"^([\w.]+\.)?SnapshotError: the trained model cannot be written to .*"
        r"(Read-only file system|Permission denied|Operation not permitted)",
        fix="make the snapshots' volume writable again and restart the job: it continues from its last snapshot",
        seen="SnapshotError: the trained model cannot be written to /kit/snapshots: [Errno 13] Permission denied: ...",
    ),
    Cause(
        "loss-or-snapshot-not-finite",  # the same steps from the last snapshot lead to it again
        r"^([\w.]+\.)?NonFiniteLossError: ",
        fix="lower the learning rate, clip the gradients, or look at the data of that step; then restart the job: it "
        "continues from the last snapshot before it",
        permanent=True,
        seen="NonFiniteLossError: ...",
    ),
    # Only a change of the script or the image helps.
    Cause(
        "module-not-on-path",
        r"^ModuleNotFoundError: No module named '([^'.]+)[^']*' \(it is in (\S+), which is not in sys\.path\)",
        fix="--env PYTHONPATH={1}: {0} is in the folder of the job, and Python looks next to the script alone; or run "
        "it as a module (-m)",
        permanent=True,
        seen="ModuleNotFoundError: No module named 'models' (it is in ., which is not in sys.path)",
    ),
    Cause(
        "module-not-found",
        r"^ModuleNotFoundError: No module named '([^']+)'",
        fix="name a file with {0} as --requirements, or install it for the ranks' Python; modules of your own must be "
        "next to the script, or below the folder that -m starts in, or of --env PYTHONPATH=.: --workdir sends them",
        permanent=True,
        seen="ModuleNotFoundError: No module named 'datasets'",
    ),
    Cause(
        "import-name-not-found",
        r"^ImportError: (cannot import name|attempted relative import)",
        fix="fix the import, or install the package's version that has it; a relative import needs -m and the module",
        permanent=True,
        seen="ImportError: cannot import name 'Trainer' from 'transformers'",
    ),
    Cause(
        "module-not-executable",
        r"^ImportError: (No module named \S+\.__main__: |\S+ has no Python code)",
        fix="name a module after -m that can be run",
        permanent=True,
        seen="ImportError: No module named data.__main__: 'data' is a package and cannot be directly executed",
    ),
    Cause(
        "syntax-error",
        r"^(SyntaxError|IndentationError|TabError): ",
        fix="fix the script",
        permanent=True,
        seen="SyntaxError: invalid syntax (train.py, line 2)",
    ),
    Cause(
        "command-line-invalid",
        r"(?im)^exit code 2\b.*^usage: .*^(\S+: )?error: ",  # argparse, click
        fix="fix the arguments that follow the script; see the last lines",
        permanent=True,
        seen="exit code 2\nusage: train.py [-h]\ntrain.py: error: unrecognized arguments: --epoch 3",
    ),
    Cause(
        "backend-needs-gpu",  # an error's own words: among the last lines they may be a warning
        r"^[\w.]+: .*(requires at least one CUDA device|is only supported with GPUs"
        r"|assigned backend nccl is not available|Nccl backend is required but no cuda)",
        fix="give each node GPUs (--gpus-per-node N), or let the script use the backend gloo",
        permanent=True,
        seen="RuntimeError: nccl2 requires at least one CUDA device",
    ),
    Cause(
        "torch-built-without-nccl",
        r"^[\w.]+: .*doesn't have NCCL built in",
        fix="this torch is built without NCCL, as those for CPUs are: let the script use the backend gloo; or choose "
        "an image whose torch is built for CUDA, and give each node GPUs (--gpus-per-node N)",
        permanent=True,
        seen="RuntimeError: Distributed package doesn't have NCCL built in",
    ),
    Cause(
        "nvidia-driver-not-found",
        r"^[\w.]+: .*Found no NVIDIA driver",
        fix=_NO_DRIVER,
        permanent=True,
        seen="RuntimeError: Found no NVIDIA driver on your system.",
    ),
    Cause(
        "torch-built-without-gloo",
        r"^[\w.]+: .*doesn't have Gloo built in",
        fix="choose an image whose torch has gloo, such as pytorch/pytorch; or give each node GPUs "
        "(--gpus-per-node N), where the backend is nccl",
        permanent=True,
        seen="RuntimeError: Distributed package doesn't have Gloo built in",
    ),
    # So is what a whole checkpoint holds.
    Cause(
        "checkpoint-not-weights-only",
        r"^[\w.]*UnpicklingError: Weights only load failed.*?Unsupported (?:global|class)",
        fix="torch.load(..., weights_only=False) if you trust the file; or save nothing but state_dicts",
        deterministic=True,
        seen="UnpicklingError: Weights only load failed: Unsupported global: GLOBAL argparse.Namespace was not an "
        "allowed global by default",
    ),
    # So it is here, unless it hides an error that passes: in code that handles one.
    Cause(
        "name-or-call-invalid",
        r"^(NameError: name|UnboundLocalError: |AttributeError: module ')"
        r"|^TypeError: .*(unexpected keyword argument|required positional argument)",
        fix="define or import it before that line, on each way there; a call's arguments are those of the installed "
        "version",
        deterministic=True,
        seen="NameError: name 'lr' is not defined",
    ),
    # Memory: of the GPU, of the container, of /dev/shm.
    Cause(
        "gpu-out-of-memory",
        r"CUDA out of memory|Cuda failure '?out of memory|Failed to CUDA calloc|torch\.OutOfMemoryError"
        r"|CUDA_ERROR_OUT_OF_MEMORY|CUDA error: out of memory"
        r"|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)",
        fix="a smaller batch for each rank, activation checkpointing, or a sharded model; if much is reserved but not "
        "allocated, --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        seen="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
    ),
    Cause(
        "shared-memory-unavailable",
        r"DataLoader worker .* Bus error|shared memory\(shm\)"
        r"|unable to (open|mmap|write)[^\n]*(shared memory object|<?/torch_\d)",
        fix=_SHARED,
        seen="RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.",
    ),
    Cause(
        "mapped-memory-unavailable",
        r"^killed by SIGBUS",
        fix=f"{_SHARED}; if a mapped file was truncated or its volume is gone, fix that",
        seen="killed by SIGBUS at train.py:7: mapped memory is not there: its file was truncated, or ...",
    ),
    Cause(
        "out-of-memory",
        r"^killed by SIGKILL.*out of memory|^MemoryError\b|Cannot allocate memory(?! \w)"
        r"|DefaultCPUAllocator: (not enough|can't allocate) memory",
        fix=_MEMORY,
        seen="killed by SIGKILL: out of memory: the limit is 8.0 GiB",
    ),
    Cause(
        "data-loader-worker-exited",
        r"DataLoader worker .* exited unexpectedly with exit code \d+",
        fix="see what it printed before, or run with num_workers=0, which shows its error: it ended itself; if its own "
        "error above speaks of bootstrapping, the script needs: if __name__ == '__main__':",
        seen="RuntimeError: DataLoader worker (pid 7) exited unexpectedly with exit code 1. ...",
    ),
    Cause(
        "data-loader-worker-died",
        r"DataLoader worker .* (killed by signal: Killed|exited unexpectedly)",
        fix=_LOADER,
        seen="RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
    ),
    # GPUs and their kernels.
    Cause(
        "gpu-assertion-failed",
        r"device-side assert",
        fix="usually an index out of range, such as a label beyond the classes: --env CUDA_LAUNCH_BLOCKING=1 makes the "
        "traceback name the line",
        seen="RuntimeError: CUDA error: device-side assert triggered",
    ),
    Cause(
        "gpu-hardware-error",
        r"uncorrectable ECC|CUDA error: .*ECC error|NVRM: Xid|fallen off the bus|GPU is lost",
        fix=_GPU,
        seen="RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    Cause(
        "nvidia-driver-not-found",
        r"libcuda\.so|libnvidia-ml\.so|Found no NVIDIA driver",
        fix=_NO_DRIVER,
        seen="ImportError: libcuda.so.1: cannot open shared object file",
    ),
    Cause(
        "nvidia-driver-unusable",
        r"CUDA driver version is insufficient|CUDA driver initialization failed"
        r"|NVIDIA driver on your system is too old|unsupported display driver"
        r"|CUDA unknown error - this may be due to an incorrectly",
        fix=_DRIVER,
        seen="RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
    ),
    Cause(
        "gpu-architecture-unsupported",
        r"no kernel image is available",
        fix="this build of torch does not support this GPU: use another build",
        seen="RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    # Wrong calls and broken devices raise the same types as a lost peer, but fail again.
    Cause(
        "nccl-usage-invalid",
        r"ncclInvalid(Usage|Argument)",
        fix="each rank needs its own GPU, and must make the same calls: --nccl-debug INFO",
        seen="DistBackendError: NCCL error in: ..., ncclInvalidUsage: Duplicate GPU detected",
    ),
    Cause(
        "nccl-shared-memory-unavailable",
        r"Error while creating shared memory segment /dev/shm/nccl",
        fix=_SHARED,
        seen="DistBackendError: NCCL error in: ..., ncclSystemError: Error while creating shared memory segment "
        "/dev/shm/nccl-7 (size 9637888)",
    ),
    Cause(
        "cuda-error",
        r"ncclUnhandledCudaError|CUDA error: ",
        fix="--env CUDA_LAUNCH_BLOCKING=1 makes the traceback name the line",
        seen="RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    # Disks, files, ports.
    Cause(
        "disk-or-quota-full",
        r"(No space left on device|Disk quota exceeded)(?! \w)|\bENOSPC\b|\bEDQUOT\b",
        fix="free space at the path in the message, or use a larger volume; snapshots.keep limits how many are kept",
        seen="OSError: [Errno 28] No space left on device",
    ),
    Cause(
        "relative-path-not-found",
        r"^FileNotFoundError: \[Errno 2\] No such file or directory: '([^/'][^']*)'$",  # a relative path
        fix="is {0} in the folder in which the job runs? Of one that was sent, files that git ignores, such as data, "
        "are left out unless --send {0} or a line !{0} in .kitignore names them; large data belong on a volume: "
        "--volume. If another rank writes it: "
        "dist.barrier() before it is read, and a folder in $KIT_SNAPSHOT_DIR, which all nodes share",
        seen="FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'",
    ),
    Cause(
        "checkpoint-not-found",
        r"^ValueError: Can't find a valid checkpoint at ([^/\s]\S*)",  # a relative path, in transformers
        fix="{0} is in each node's own copy of the folder, and the checkpoint on one node only: give output_dir a "
        "folder in $KIT_SNAPSHOT_DIR, which all nodes share, or add KitCallback (docs/frameworks.md)",
        seen="ValueError: Can't find a valid checkpoint at out/checkpoint-10",
    ),
    Cause(
        "snapshot-storage-without-library",
        r"^OwnFolderError: snapshots\.storage: (?:perNode|memory)",
        fix="snapshots.storage: claim, whose folder all nodes share; or train with kittrain.Training or kittrain.Run "
        "(docs/trainer.md), whose snapshots have copies on other nodes",
        seen="OwnFolderError: snapshots.storage: perNode keeps copies of the snapshots of kittrain.Training alone",
    ),
    Cause(
        "file-system-read-only",
        r"Read-only file system(?!s)",
        fix="write to the snapshot folder or to /tmp, or set security.readOnlyRoot: false",
        seen="OSError: [Errno 30] Read-only file system: 'runs'",
    ),
    Cause(
        "too-many-processes-or-threads",
        r"can't start new thread(?! \w)|pthread_create failed|fork: (?:retry: )?Resource temporarily unavailable",
        fix="the limit of processes and threads is reached: fewer data loader workers, OMP_NUM_THREADS=1, or a higher "
        "limit (ulimit -u; of pods podPidsLimit of their kubelet)",
        seen="RuntimeError: can't start new thread",
    ),
    Cause(
        "too-many-open-files",
        r"\[Errno 24\]|Too many open files(?!: | \w)|received \d+ items of ancdata",
        fix="close what is opened (with open(...)), also in __getitem__; of tensors that workers send: "
        "torch.multiprocessing.set_sharing_strategy('file_system'), or fewer workers; else a higher limit (ulimit -n)",
        seen="OSError: [Errno 24] Too many open files",
    ),
    # Of a process that the script has started, and that has ended: multiprocessing reaches no other machine's ranks.
    Cause(
        "child-process-connection-lost",
        r"^(ConnectionResetError|ConnectionRefusedError|BrokenPipeError|EOFError)\b",
        fix="a process that the script has started has ended: see its own error in the log; from Python 3.14 on such a "
        "process imports the script: put what it does under if __name__ == '__main__':",
        called=r"multiprocessing/(connection|forkserver|popen_\w+|managers|queues)\.py\W, line \d+, in [^\n]*\n"
        r"(?!.*\bFile )",
        seen="ConnectionResetError: [Errno 104] Connection reset by peer",
    ),
    # Each round chooses a new port for the ranks' store: another process took this one first.
    Cause(
        "address-in-use",
        r"^(torch\.distributed\.)?Dist\w*Error\b.*EADDRINUSE",
        "peer",
        called=r"torch/distributed/rendezvous\.py\W",  # else a store of the script's own
    ),
    Cause(
        "address-in-use",
        r"Address already in use(?! \w)|\bEADDRINUSE\b",
        fix="let the system choose the port (0), or make it depend on LOCAL_RANK: the ranks of a node share its ports; "
        "of a TCPStore, one rank alone is_master",
        seen="OSError: [Errno 98] Address already in use",
    ),
    # A server of the script's own that does not answer is no lost peer: torch raises none of these types.
    Cause(
        "service-connection-failed",
        r"^([\w.]+\.)?(URLError|HTTPError|MaxRetryError|NewConnectionError|Connect(ion)?Timeout(Error)?"
        r"|ReadTimeout(Error)?"
        r"|ConnectError|Client\w*Error|OperationalError|ProxyError|SSLError|EndpointConnectionError): "
        # Those of requests, of the hub and of redis have the name of Python's own.
        r"|^([\w.]+\.)?ConnectionError: (HTTPS?ConnectionPool\(|\('Connection aborted|Couldn't reach |Error -?\d+ )",
        fix="check that the service is up, and reached at that address from the nodes",
        seen="URLError: <urlopen error [Errno 111] Connection refused>",
    ),
    # Torch raises this with the type of a lost peer, but it does not depend on peers.
    Cause(
        "torch-built-without-libuv",
        r"use_libuv was requested",
        fix="this build of torch has no libuv: --env USE_LIBUV=0, or another build",
        seen="DistStoreError: use_libuv was requested but PyTorch was built without libuv support",
    ),
    # NCCL's watchdog aborts a process whose peers do not answer; its other reasons are above.
    Cause(
        "collective-timeout",
        r"^killed by SIGABRT.*(Watchdog caught collective operation timeout|ncclRemoteError)",
        "peer",
    ),
    Cause("nccl-watchdog-ended", r"^killed by SIGABRT.*(NCCL watchdog thread terminated|watchdog got stuck)", "peer"),
    # Any other error of the process group or its store: the rank only knows that others are gone.
    Cause("peer-lost", r"^(torch\.distributed\.)?Dist(Backend|Network|Store|)Error\b", "peer"),
    Cause("peer-lost", r"^(ConnectionError|ConnectionResetError|ConnectionRefusedError|BrokenPipeError)\b", "peer"),
    # With the words of torch around them: a script's own client says "Connection refused", too.
    Cause(
        "peer-lost",
        r"^\w+: (Connection (closed by peer|reset by peer|refused)|Broken pipe|Socket (closed|Timeout))(\n|\.|$)"
        r"|(?=.*([Gg]loo|c10d|NCCL|TCPStore|store->|pair\.cc|\]:\d|\[rank\d))"
        r".*(Connection (closed by peer|reset|refused)|Broken pipe|Socket (closed|Timeout))",
        "peer",
    ),
    Cause("peer-lost", r"[Gg]loo.*(Timed out|timeout|Read error|Write error|connectFullMesh|Try again)", "peer"),
    Cause(
        "peer-lost", r"Timed out waiting \d+ms for (recv|send|unbound)|Application timeout caused pair closure", "peer"
    ),
    Cause("peer-lost", r"ncclRemoteError|ncclSystemError|NCCL communicator was aborted", "peer"),
    Cause("peer-lost", r"wait timeout after \d+ms|Timed out after \d+ seconds waiting for clients", "peer"),
    Cause(
        "collective-mismatch",
        r"^killed by SIGABRT.*(?:[Rr]eceived data size doesn't match|op\.preamble\.length <= op\.nbytes)",
        fix="make the call, its shape and its type the same on all ranks there: pad a last, shorter batch, and give "
        "broadcast_object_list() lists of one length; and let no rank leave out a collective, or a backward pass, that "
        "others take part in",
        of_code=True,
        seen="killed by SIGABRT at train.py:8 in evaluate: op.preamble.length <= op.nbytes. 652 vs 8. Received data "
        "size doesn't match expected size.",
    ),
    # Signals without further information.
    Cause(
        "native-code-crash",
        r"^killed by SIG(SEGV|FPE|ABRT)",
        fix=_NATIVE,
        seen="killed by SIGSEGV at train.py:17 in step: invalid memory access in native code",
    ),
    Cause(
        "cpu-instruction-unsupported",
        r"^killed by SIGILL",
        fix="a library was built for another CPU: use another build, or set nodeSelector",
        seen="killed by SIGILL",
    ),
    Cause(
        "rank-killed",
        r"^killed by SIGKILL",
        fix="it was sent from outside: check the machine's kernel log (out of memory), and what else kills processes",
        seen="killed by SIGKILL",
    ),
    Cause(
        "rank-interrupted",
        r"^KeyboardInterrupt",
        fix="the rank received a SIGINT, which kitctl never sends",
        called=r"\A(?!.*\n +raise KeyboardInterrupt)",  # else the script makes it itself
        seen="KeyboardInterrupt: ",
    ),
)
UNKNOWN: Final = Cause("", "")
_NO_MESSAGE: Final = re.compile(r"exit code -?\d+|killed by SIG")  # the rank could not write its error


def cause_of(error: str, lines: Sequence[str] = (), traceback: str = "") -> Cause:
    """The row that explains why a rank ended, with its fix filled in; :data:`UNKNOWN` if there is none.

    The last lines count only if there is no error message: before an exception a rank may have printed anything. They
    never count as a lost peer, except after SIGABRT, which NCCL's watchdog sends.
    """
    whole = "\n".join((error, *lines)) if _NO_MESSAGE.match(error) else error
    for row in CAUSES:
        if row.called and not re.search(row.called, traceback, re.DOTALL):
            continue
        text = whole if row.kind == "own" or error.startswith("killed by SIGABRT") else error
        if found := re.search(row.pattern, text, re.DOTALL):
            return replace(row, fix=row.fix.format(*found.groups()))
    return UNKNOWN
