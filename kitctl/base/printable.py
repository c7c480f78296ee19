"""Escape text from outside (ranks, pods, events, file names) so that it cannot control a terminal. Pure.

A control character can clear the screen, set a title, or forge or overwrite a line; a bidirectional or invisible one
makes text look different. Each is replaced by its Python escape.

Why: decision 32.
"""

from __future__ import annotations

import re
from typing import Final

# C0 and C1 controls; bidirectional controls; invisible characters, except the joiners that emoji and some scripts need;
# line separators; and lone surrogates, which cannot be printed (file names that are not UTF-8 have them).
_UNSAFE: Final = (
    r"\x00-\x1f\x7f-\x9f"
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    r"\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
    r"\u2028\u2029"
    r"\ud800-\udfff"
)
# Compiled by `re` when they are first used, and kept there: kitctl starts sooner.
_IN_A_LINE: Final = f"[{_UNSAFE}]"
_IN_A_TEXT: Final = rf"(?![\n\t])[{_UNSAFE}]"
_IN_JSON: Final = rf"(?![\x00-\x1f])[{_UNSAFE}]"
_COLOUR: Final = r"\x1b\[[0-9;:]*m"  # SGR: only changes how text looks
_IN_A_LOG: Final = rf"{_COLOUR}|(?![\t\r])[{_UNSAFE}]"
_PLAIN: Final = "\x1b[0m"


def line(text: str) -> str:
    """One line of a table or a page; line breaks are escaped, too."""
    return re.sub(_IN_A_LINE, _escape, text)


def text(text: str) -> str:
    """Text with line breaks and tabs."""
    return re.sub(_IN_A_TEXT, _escape, text)


def log(text: str) -> str:
    """A line of a log: colours stay, and are reset at its end; so do carriage returns, which progress bars use."""
    shown = re.sub(_IN_A_LOG, lambda found: found[0] if len(found[0]) > 1 else _escape(found), text)
    return f"{shown}{_PLAIN}" if "\x1b" in shown else shown


def json(text: str) -> str:
    r"""Equivalent JSON: what is unsafe in a terminal is written as ``\uXXXX``."""
    return re.sub(_IN_JSON, _json_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
