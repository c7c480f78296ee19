"""Why ranks fail, as a table: whose fault it is, what to do about it, and whether to start again could help. Pure.

The first row that is found decides. Each row has the message that it was seen in as its test.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

Kind = Literal["own", "hang", "drained", "storage", "peer", "stopped"]

_MEMORY: Final = (
    "raise resources.limits.memory, or hold less: fewer data loader workers, smaller batches, files read as they are "
    "needed"
)
_SHARED: Final = "raise sharedMemory (and the memory limit, which it counts as), or use fewer data loader workers"
_GPU: Final = "this machine's GPU, or its driver, is at fault: take the machine out of use, and restart the job"
_NATIVE: Final = "the stack says which call; look for a library that was built for another version of Python or torch"


@dataclass(frozen=True)
class Cause:
    """One row.

    Attributes:
        pattern: found in a rank's error or, for an ``own`` one that could not tell its error, in its last lines.
        kind: whose fault it is.
        fix: what a person can do; ``{0}`` is the pattern's first group. Empty: the error says all there is to say.
        hopeless: whether the same happens however often it is tried.
    """

    pattern: str
    kind: Kind = "own"
    fix: str = ""
    hopeless: bool = False


# Exception types by torch's names; texts as Python, gloo, NCCL, CUDA, TCPStore and the kernel word them.
CAUSES: Final[tuple[Cause, ...]] = (
    Cause(r"^hang: ", "hang"),  # as the hub words it
    Cause(
        r"^StorageUnavailableError: ",  # whatever words of the system are in it
        "storage",
        fix="see to the volume at the path in the message; a snapshot that can never be read again may be moved away, "
        "and the one before it is used",
    ),
    # Nothing but another script or another image changes these.
    Cause(
        r"^ModuleNotFoundError: No module named '([^']+)'",
        fix="install {0} in the job's image (for --target local: beside kitctl); a file of your own has to lie beside "
        "the script, or below the folder that -m starts in",
        hopeless=True,
    ),
    Cause(r"^(SyntaxError|IndentationError|TabError): ", fix="mend the script", hopeless=True),
    Cause(
        r"(?im)^exit code 2\b.*^usage: .*^(\S+: )?error: ",  # argparse, click
        fix="mend the arguments that follow the script: the last lines say which",
        hopeless=True,
    ),
    # Memory: of the GPU, of the container, of /dev/shm.
    Cause(
        r"CUDA out of memory|torch\.OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY",
        fix="a smaller batch for each rank, activation checkpointing, or a sharded model; if much is reserved but not "
        "allocated, --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    Cause(
        r"DataLoader worker .* Bus error|shared memory\(shm\)|unable to (open|mmap|write).*(shared memory|/torch_)",
        fix=_SHARED,
    ),
    Cause(r"^killed by SIGBUS", fix=f"{_SHARED}; if a mapped file was cut or its volume went away, see to that"),
    Cause(r"^killed by SIGKILL.*out of memory|^MemoryError\b|Cannot allocate memory|not enough memory", fix=_MEMORY),
    Cause(r"DataLoader worker .* (killed by signal: Killed|exited unexpectedly)", fix=_MEMORY),
    # The GPU, and what it runs.
    Cause(
        r"device-side assert",
        fix="mostly an index out of range, such as a label beyond the classes: --env CUDA_LAUNCH_BLOCKING=1 makes the "
        "traceback name the line",
    ),
    Cause(r"uncorrectable ECC|ECC error|\bXid\b|fallen off the bus|GPU is lost", fix=_GPU),
    Cause(
        r"libcuda\.so|libnvidia-ml\.so|CUDA driver version is insufficient|Found no NVIDIA driver",
        fix="the container sees no NVIDIA driver that fits: ask for GPUs (gpusPerNode), and see that the machine has "
        "the driver and its container runtime",
    ),
    Cause(r"no kernel image is available", fix="this build of torch does not know this GPU: use another build"),
    # Wrong calls and broken devices come wrapped in the same types as a lost peer, and will fail again.
    Cause(r"ncclInvalid(Usage|Argument)", fix="each rank needs a GPU of its own, and the same call: --nccl-debug INFO"),
    Cause(r"ncclUnhandledCudaError|CUDA error: ", fix="--env CUDA_LAUNCH_BLOCKING=1 makes the traceback name the line"),
    # Disks, files, ports.
    Cause(
        r"No space left on device|Disk quota exceeded|\bENOSPC\b|\bEDQUOT\b",
        fix="free space where the message says, or take a larger volume; snapshots.keep bounds how many are kept",
    ),
    Cause(r"Read-only file system", fix="write to the snapshots' folder or to /tmp; security.readOnlyRoot allows more"),
    Cause(
        r"Too many open files|received \d+ items of ancdata",
        fix="torch.multiprocessing.set_sharing_strategy('file_system'), fewer data loader workers, or a higher limit "
        "of open files (ulimit -n)",
    ),
    # The port of the ranks' own store is chosen anew in each round: another rank's server was quicker.
    Cause(r"^(torch\.distributed\.)?Dist\w*Error\b.*EADDRINUSE", "peer"),
    Cause(
        r"Address already in use|\bEADDRINUSE\b",
        fix="let the system choose the port (0), or make it differ by LOCAL_RANK: ranks of a node share its ports",
    ),
    # Torch tells it by the type of a lost peer, and no peer can change it.
    Cause(r"use_libuv was requested", fix="this build of torch has no libuv: --env USE_LIBUV=0, or another build"),
    # NCCL's watchdog ends a process whose peers do not answer. Above: what else it ends one for.
    Cause(r"^killed by SIGABRT.*(Watchdog caught collective operation timeout|ncclRemoteError)", "peer"),
    Cause(r"^killed by SIGABRT.*(NCCL watchdog thread terminated|watchdog got stuck)", "peer"),
    # Any other error of the process group or its store: the rank cannot know more than that the others are gone.
    Cause(r"^(torch\.distributed\.)?Dist(Backend|Network|Store|)Error\b", "peer"),
    Cause(r"^(ConnectionError|ConnectionResetError|ConnectionRefusedError|BrokenPipeError)\b", "peer"),
    Cause(r"Connection (closed by peer|reset|refused)|Broken pipe|Socket (closed|Timeout)", "peer"),
    Cause(r"[Gg]loo.*(Timed out|timeout|Read error|Write error|connectFullMesh|Try again)", "peer"),
    Cause(r"Timed out waiting \d+ms for (recv|send|unbound)|Application timeout caused pair closure", "peer"),
    Cause(r"ncclRemoteError|ncclSystemError|NCCL communicator was aborted", "peer"),
    Cause(r"wait timeout after \d+ms|Timed out after \d+ seconds waiting for clients", "peer"),
    # Signals of which nothing more is known.
    Cause(r"^killed by SIG(SEGV|FPE|ABRT)", fix=_NATIVE),
    Cause(r"^killed by SIGILL", fix="a library was built for another CPU: another build, or machines by nodeSelector"),
    Cause(
        r"^killed by SIGKILL",
        fix="it came from outside: see the machine's kernel log (a lack of memory), and who else ends processes there",
    ),
    Cause(r"^KeyboardInterrupt", fix="a SIGINT has reached the rank: nothing of kitctl sends one"),
)
NONE: Final = Cause("")
_UNTOLD: Final = re.compile(r"exit code -?\d+|killed by SIG")  # of a rank that could not leave its error


def cause_of(error: str, lines: Sequence[str] = ()) -> Cause:
    """The row that explains a rank's end, its fix complete; :data:`NONE` where there is none.

    The last lines count only if the rank could not tell its error: what it printed before an exception may be anything.
    Nor do they tell that others are gone, but for the end that NCCL's watchdog makes.
    """
    whole = "\n".join((error, *lines)) if _UNTOLD.match(error) else error
    for row in CAUSES:
        told = whole if row.kind == "own" or error.startswith("killed by SIGABRT") else error
        if found := re.search(row.pattern, told, re.DOTALL):
            return replace(row, fix=row.fix.format(*found.groups()))
    return NONE
