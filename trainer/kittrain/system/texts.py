"""Makes text that comes from a script fit for logs, JSON and messages. Pure, standard library only.

An exception's text may be of any length, and may contain lone surrogates: file names that are not UTF-8 have them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

# The file of a frame that is none of the script.
LIBRARY: Final = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python[\d.]+|kittrain)[/\\]|^<")
CUT: Final = " … "  # between what is left of a text that is too long
LINE: Final = 800  # characters of a line of a traceback
HEAD: Final = 20  # first lines of one that is too long
TAIL: Final = 16000  # characters of its last ones
NAME: Final = 100  # characters of a key in JSON
VALUE: Final = 4096  # characters of a text in JSON
ENTRIES: Final = 200  # of a script's mapping


def encodable(text: str) -> str:
    """The text as it can be encoded; a lone surrogate becomes a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def shortened(text: str, *, head: int, tail: int) -> str:
    """The text's first and last characters, if it is longer than both together."""
    over = len(text) > head + tail
    return f"{text[:head]}{CUT}{text[len(text) - tail :]}" if over else text


def kept_error(text: str) -> str:
    """An error's text of limited size: rules that search it are slow for a megabyte."""
    return shortened(encodable(text), head=6000, tail=2000)


def kept_traceback(text: str) -> str:
    """A traceback of limited size, in whole lines: where it begins, and its end, which explains more.

    A line that is too long, such as one with an array's values, keeps its ends, so that it pushes out no other.
    """
    lines = text.split("\n")
    return "\n".join(encodable(shortened(line, head=LINE // 2, tail=LINE // 2)) for line in shortened_lines(lines))


def shortened_lines(lines: list[str]) -> list[str]:
    """The first ``HEAD`` lines, and as many of the last ones as ``TAIL`` characters hold."""
    size, first = 0, len(lines)
    while first > HEAD and size + min(len(lines[first - 1]), LINE) < TAIL:
        first -= 1
        size += min(len(lines[first]), LINE) + 1
    left_out = first - min(HEAD, first)
    return lines if not left_out else [*lines[:HEAD], f"  [... {left_out} lines ...]", *lines[first:]]


def of_error(error: BaseException) -> str:
    """``ValueError: message``, also for an error whose text cannot be computed."""
    try:
        text = str(error)
    except Exception as raised:  # noqa: BLE001  the script's own code
        text = f"its text cannot be shown: {type(raised).__name__}"
    return kept_error(f"{type(error).__name__}: {text}")


def fit(value: Any) -> Any:
    """Plain JSON values that every reader takes: texts and mappings of limited size, and None for NaN and infinity."""
    match value:
        case str():
            return shortened(encodable(value), head=VALUE, tail=0)
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            shown = list(value.items())[:ENTRIES]
            return {shortened(encodable(name), head=NAME, tail=0): fit(one) for name, one in shown}
        case list() | tuple():
            return [fit(one) for one in value]
        case _:
            return value
