"""What a rank printed and raised, reduced to what explains it: its last lines, the error inside an error. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LINES: Final = 10  # that are told of a rank
WIDTH: Final = 200  # characters of each
FATAL: Final = "Fatal Python error: "  # as faulthandler begins
HEADER: Final = "Traceback (most recent call last):"

_ESCAPES: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")  # colours, titles
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_USAGE: Final = re.compile(r"usage: ", re.IGNORECASE)
_THREAD: Final = re.compile(r"(Current thread|Thread|Stack) ")
_RAISED: Final = re.compile(r"[\w.]+")  # a traceback's last part begins where a line is not indented
_WHERE: Final = re.compile(r"Caught \w+ (in .+)\.$", re.MULTILINE)  # as torch words an error of another process
_WORKER: Final = re.compile(r"RuntimeError: DataLoader worker \(pid \d+\) is (killed by signal: [^.\n]*)")
_OWN: Final = re.compile(r'  File "(<frozen runpy>|.*/kittrain/(node|system)/\w+\.py)"')  # below the user's script
# What libraries print on the way out, whatever the script has failed of.
_NOISE: Final = re.compile(
    r"(\[rank\d+\]:)?\[[WI]\d{4} |.*resource_tracker: |.*\bWarning: |  warnings\.warn\(|Extension modules: "
)


def clean(line: str) -> str:
    """A line without terminal control; of one that was drawn again and again (a progress bar), what it showed last."""
    text = _ESCAPES.sub("", line).rstrip("\r\n")
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.rpartition("\r")[2].replace("\t", "    "))


def excerpt(lines: Sequence[str]) -> tuple[str, ...]:
    """Of all lines the few that explain most: the last ones, or how a fatal error of the interpreter begins.

    Args:
        lines: what a rank printed last, the oldest first.
    """
    texts = [line for line in map(clean, lines) if line.strip()]
    fatal = next((at for at, text in enumerate(texts) if text.startswith(FATAL)), None)
    chosen = texts[-LINES:] if fatal is None else _fatal(texts, fatal)
    usage = next((text for text in texts[:-LINES] if _USAGE.match(text)), None)
    if usage and fatal is None:
        chosen[:1] = [usage]
    return tuple(text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…" for text in chosen)


def last_line(lines: Sequence[str]) -> str:
    """The line that most likely says why a rank ended: the last one that is not what libraries say on the way out."""
    told = [line.strip() for line in lines if line.strip()]
    return next((line for line in reversed(told) if not _NOISE.match(line)), "")


def innermost(error: str, traceback: str) -> str:
    """The error that an error tells of another process, ``KeyError: 'x' (in DataLoader worker process 0)``.

    Data loaders' workers, spawned processes and replicas send their traceback as the text of a new error. How a data
    loader's worker was killed, torch tells in what it raises the error from.
    """
    if killed := _WORKER.search(traceback):
        return f"RuntimeError: DataLoader worker was {killed[1]}"
    _, found, inside = error.rpartition(HEADER)
    raised = (line for line in inside.splitlines() if _RAISED.match(line))
    inner = next(raised, "") if found else ""
    if not inner:
        return error
    where = _WHERE.search(error)
    return f"{inner} ({where[1]})" if where else inner


def _fatal(texts: list[str], at: int) -> list[str]:
    """What was said just before, the error, and the stack of the thread that it came from."""
    before, said, stack = texts[max(at - 3, 0) : at], texts[at], texts[at + 1 :]
    own = next((number for number, text in enumerate(stack) if text.startswith(("Current thread", "Stack"))), 0)
    end = next((number for number, text in enumerate(stack) if number > own and _THREAD.match(text)), len(stack))
    frames = [text for text in stack[own:end] if not (_NOISE.match(text) or _OWN.match(text))]
    return [*before, said, *frames][:LINES]
