"""Where a rank's main thread stands, by the stack that faulthandler printed: in a collective, or in code of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

HEADER: Final = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")
FRAME: Final = re.compile(r'  File "(.+)", line (\d+) in (.+)')

BACKWARD: Final = "the gradients' all-reduce"  # or what comes before it in the backward pass: no frame tells

# Frames that a rank waits for others in: file, function (empty: any, and its name tells), what a person calls it.
WAITS: Final[tuple[tuple[str, str, str], ...]] = (
    ("torch/distributed/distributed_c10d.py", "", ""),
    ("torch/autograd/graph.py", "_engine_run_backward", BACKWARD),
    ("torch/nn/parallel/distributed.py", "_distributed_broadcast_coalesced", "DDP's broadcast of buffers"),
    ("torch/distributed/utils.py", "_sync_module_states", "DDP's broadcast of the model"),
    ("torch/distributed/utils.py", "_verify_param_shape_across_processes", "DDP's comparison of models"),
    ("kittrain/training/pulse.py", "_wait", "the sum of the losses"),
    ("kittrain/training/pulse.py", "read", "the sum of the losses"),
)
WRAPPERS: Final = ("torch/distributed/c10d_logger.py",)  # around what is called
# Not the user's own code; the workloads are, though they come with the trainer.
LIBRARY: Final = re.compile(
    r"<frozen |/(site-packages|dist-packages|lib/python[\d.]+)/"
    rf"|{re.escape(str(Path(__file__).parent.parent))}/(?!workloads/)"
)


@dataclass(frozen=True)
class Frame:
    """One call."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line} in {self.function}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a main thread stands.

    Attributes:
        wait: the collective that it is in; empty if it is in none.
        line: the innermost line of the user's own code; of any code where there is none.
    """

    wait: str = ""
    line: str = ""


def place(printed: Iterable[str]) -> Place | None:
    """The place of the main thread, which faulthandler prints last; None if no stack was printed."""
    frames: list[Frame] = []
    for text in printed:
        if HEADER.match(text):
            frames = []
        elif found := FRAME.match(text):
            frames.append(Frame(found[1], int(found[2]), found[3]))
    if not frames:
        return None
    own = next((frame for frame in frames if not LIBRARY.search(frame.file)), frames[0])
    return Place(wait=_wait(frames), line=str(own))


def _wait(frames: list[Frame]) -> str:
    """The collective that the innermost frames are in: of several calls within each other, the outermost one."""
    name = ""
    for frame in frames:
        if frame.file.endswith(WRAPPERS):
            continue
        known = next((one for one in WAITS if frame.file.endswith(one[0]) and one[1] in {"", frame.function}), None)
        if not known:
            break
        name = known[2] or frame.function
    return name
