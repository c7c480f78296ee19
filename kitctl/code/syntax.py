"""Whether this interpreter can parse a script: a job with a slip in it would start, and fail after minutes. Pure."""

from __future__ import annotations

import ast
import sys
import warnings
from functools import lru_cache
from typing import Final

LIMIT: Final = 128 * 1024  # characters; a longer script takes longer to parse than anyone waits for
_NOTEBOOK: Final = "a notebook's command is no Python (packages come by --requirements)"
_SHOWN: Final = 60  # characters of the line


@lru_cache(maxsize=1)  # asked by two checks; parsing 2,000 lines takes 40 ms
def mistake(script: str, text: str) -> str:
    """What is wrong with a script's syntax, and where: ``train.py, line 3: '(' was never closed: fit(``.

    Args:
        script: its name. One that does not end in .py may be of another language.
        text: of it.

    Returns:
        Nothing if it can be parsed, or is not looked at.
    """
    if not script.endswith(".py") or len(text) > LIMIT:
        return ""
    try:
        with warnings.catch_warnings():  # of invalid escapes; the ranks print them, too
            warnings.simplefilter("ignore")
            ast.parse(text.removeprefix("\ufeff"))
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line[:_SHOWN]}" if line else ""
        begins = not (error.text or "")[: (error.offset or 1) - 1].strip()  # else an operator on a line of its own
        why = _NOTEBOOK if begins and line.startswith(("!", "%")) else error.msg
        return f"{script}, line {error.lineno or 1}: {why}{shown}"
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL, or nested too deeply for the parser
        return "" if not isinstance(error, ValueError) else f"{script}: {error}"
    return ""


def version() -> str:
    """The interpreter that has parsed it."""
    return f"Python {sys.version_info.major}.{sys.version_info.minor}"
