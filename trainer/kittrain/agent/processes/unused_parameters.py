"""Names the parameters of which DDP's error tells the numbers only: those that got no gradient in the step before.

Numbers are DDP's own: it leaves out what was frozen before it was given the model. Imports no torch: a script that has
such an error has imported it.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import Any, Final

MODULE: Final = "torch.nn.parallel.distributed"
MOST: Final = 3  # names
LENGTH: Final = 120  # characters of them
_NUMBERS: Final = re.compile(r"Parameter indices which did not receive grad for rank \d+:((?: \d+)+)")
_NAME: Final = re.compile(r"[\w.]+")


def unused(error: BaseException) -> str:
    """``text.weight, text.bias and 2 more had no gradient``; empty for another error, or if that is not known."""
    try:
        numbers = _NUMBERS.search(str(error))
        ddp = _raised_in(error.__traceback__) if numbers else None
        return _told(_names(ddp), [*map(int, numbers[1].split())]) if numbers and ddp is not None else ""
    except Exception:  # noqa: BLE001  the script's own model may refuse anything: must not hide its error
        return ""


def _raised_in(trace: TracebackType | None) -> Any:
    """The innermost DDP module whose method has raised an error; None without one."""
    kind, found = getattr(sys.modules.get(MODULE), "DistributedDataParallel", ()), None
    while trace is not None:
        if trace.tb_frame.f_code.co_varnames[:1] == ("self",) and isinstance(trace.tb_frame.f_locals.get("self"), kind):
            found = trace.tb_frame.f_locals["self"]
        trace = trace.tb_next
    return found


def _names(ddp: Any) -> list[str]:
    from kittrain.torch_private.ddp import averaged_names  # noqa: PLC0415  it imports torch

    return averaged_names(ddp)


def _told(names: list[str], numbers: list[int]) -> str:
    found = [names[number] for number in numbers] if names else []
    shown = [name for name in found if _NAME.fullmatch(name)][:MOST]
    while shown and len(", ".join(shown)) > LENGTH:
        shown.pop()
    more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    return f"{', '.join(shown)}{more} had no gradient" if shown else ""
