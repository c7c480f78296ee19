"""Warnings of torch that say that a result is wrong, and that are lost among others at the begin of a log.

They are passed on as they are, and the first one is said again at a rank's end. Imports no torch.
"""

from __future__ import annotations

import re
import sys
import tracemalloc
import warnings
from types import ModuleType
from typing import Any, Final

from kittrain.outcome.rank_output import WARNED

# A loss of values that are broadcast to each other, and a checkpointed part whose parameters get no gradients.
WRONG: Final = re.compile(
    r"(Using a target size \(.*?\) that is different to the input size \(.*?\))\."
    r"|(None of the inputs have requires_grad=True\. Gradients will be None)"
)
SIZE: Final = re.compile(r"torch\.Size\((\[[\d, ]*\])\)")


class TorchWarnings:
    """The warnings of a process."""

    def __init__(self) -> None:
        self._told = ""

    def watch(self, _module: ModuleType) -> None:
        """Watch what is shown from now on. Not where a warning may tell where something was allocated."""
        if tracemalloc.is_tracing():
            return
        show = warnings.showwarning

        def noted_show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
            show(message, *args, **kwargs)
            if not self._told and (found := WRONG.search(str(message))):
                self._told = WARNED + SIZE.sub(r"\1", found[1] or found[2])

        warnings.showwarning = noted_show

    def tell(self) -> None:
        """Say it again, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {self._told}\n")
