"""Scripts that take their local rank as an argument, as torch.distributed.launch gives it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

MACRO: Final = "${local_rank}"  # torch's own; each rank replaces it in its arguments
SPELLINGS: Final = ("--local-rank", "--local_rank")


def with_local_rank(args: Sequence[str], source: str, default: str = "") -> list[str]:
    """The arguments, and in front of them the local rank, if the script declares such an argument and gets none.

    Args:
        args: of the script.
        source: of the script; empty if it is not known.
        default: the argument's spelling if the source is not known or does not show it; empty: none.
    """
    name = _declared_name(source) or default
    given = any(arg.partition("=")[0] in SPELLINGS for arg in args)
    return [*args] if given or not name else [f"{name}={MACRO}", *args]


def _declared_name(source: str) -> str:
    """The argument for the local rank that a script declares, as ``--local_rank``; empty: none, or it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    declared = {name for call in ast.walk(tree) if isinstance(call, ast.Call) for name in _declared(call)}
    return next((name for name in SPELLINGS if name in declared), "")


def _declared(call: ast.Call) -> Iterator[str]:
    """The names that a call of ``add_argument`` declares."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
        yield from (word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str))
