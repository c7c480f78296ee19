"""The words of a failure that say most, where those of its error say little. Pure."""

from __future__ import annotations

import re
from typing import Final

from kitjob.record import replace
from kitjob.report import VALUES, WAITED_FOR_A_THREAD, Termination

_CAUSED: Final = "\nThe above exception was the direct cause of the following exception:\n"
_FRAME: Final = re.compile(r'^ *File "(?:[^"]*/)?([^"/]+)", line (\d+)(?:, in [^\n]*\n +([^\n]+))?', re.MULTILINE)
_LIBRARIES: Final = re.compile(
    r'^ *File "(?:[^"]*/(?:site-packages|dist-packages|lib/python[\d.]+|kittrain)/|<frozen ).*$', re.MULTILINE
)
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:: .*)?)$")
_OF_A_PROCESS: Final = re.compile(
    r"CalledProcessError: |ProcessExitedException: |BrokenProcessPool: |ChildFailedError: "
    r"|RuntimeError: DataLoader worker .*exited unexpectedly"
)
_IN_THREAD: Final = re.compile(r"\(in thread [^\n]+\)$")  # as the agent adds it
_NAMES_NO_FILE: Final = re.compile(
    r"(?:[\w.]+\.)?(?:(?:JSON|TOML|Unicode)DecodeError|EmptyDataError|BadZipFile"
    r"|EOFError: (?:Ran out of input|No data left in file|Compressed file ended before))\b"
)
_PACKAGE: Final = re.compile(
    r'^ *File "[^"]*/(?:site|dist)-packages/(\w+)[/.][^"]*", line \d+, in (\w+)$', re.MULTILINE
)
_MEANT: Final = re.compile(r"^\w+: .*Did you mean: '([^'\n]+)'\?$(?![\s\S]*\n  File )", re.MULTILINE)
_CRASH: Final = re.compile(r"killed by SIG[A-Z]+( at [^\s:]+:\d+(?: in [\w.<>]+)?)")
_GROUP: Final = re.compile(r"\(\d+ sub-exceptions?\)$")
_MARGIN: Final = re.compile(r"^ *\| ?", re.MULTILINE)  # of what an exception group's traceback shows of one of them
_ERROR: Final = re.compile(r"(?:\S+: )?(?:error|fatal)\b|[\w.]+(?:Error|Exception)(?:: |$)", re.IGNORECASE)


def first_of_group(failure: Termination) -> Termination:
    """An exception group's first error with its own traceback: the group only counts them."""
    if not _GROUP.search(failure.error):
        return failure
    lines = _MARGIN.sub("", failure.traceback.rpartition(failure.error)[2]).split("\n")
    for at, line in enumerate(lines):
        found = _RAISED.match(line)
        if found and lines[at - 1].startswith(" ") and not _GROUP.search(line):
            error = found[1] if ":" in found[1] else f"{found[1]}:"
            return replace(failure, error=error, traceback="\n".join(lines[: at + 1]))
    return failure


def origin(failure: Termination) -> str:
    """The first error of a chain that the script made itself, by ``raise ... from error``; empty without one.

    What the trainer raises in this way says all that there is to say.
    """
    first, caused, rest = failure.traceback.partition(_CAUSED)
    if "/kittrain/" in rest.rpartition('\n  File "')[2].partition("\n")[0]:
        return ""
    lines = first.rstrip().split("\n")
    last = max((at for at, line in enumerate(lines) if line.startswith(" ")), default=-1)
    found = _RAISED.match(lines[last + 1]) if caused and last + 1 < len(lines) else None
    return found[1] if found and failure.error in rest else ""  # else its words are those of another process


def said_before(failure: Termination) -> str:
    """What a process or thread of the script said, whose end is all that the error tells; empty if it said no error."""
    if WAITED_FOR_A_THREAD.match(failure.error):
        return next((line for line in reversed(failure.lines) if _IN_THREAD.search(line)), "")
    errors = [line.strip() for line in failure.lines if _ERROR.match(line.strip()) and failure.error not in line]
    return errors[-1] if errors and _OF_A_PROCESS.match(failure.error) else ""


def crashed_at(error: str) -> str:
    """`` at train.py:8 in evaluate``: where native code ended a rank, as its error says; empty if that says nothing."""
    found = _CRASH.match(error)
    return found[1].removesuffix(" in <module>") if found else ""


def names_no_file(error: str) -> bool:
    """Whether an error is of what was read, and does not say where that was: the line of the script shows it."""
    return bool(_NAMES_NO_FILE.match(error))


def source(traceback: str) -> str:
    """`` at train.py:20: assert a == b``: the line that an error without words comes from; empty without one.

    If a library asserts something, its words and both places.
    """
    frame, every = _last(traceback), _FRAME.findall(traceback)
    if not frame:
        return ""
    place, code = f"{frame[0]}:{frame[1]}", frame[2]
    if not code.startswith("assert ") and every[-1][2].startswith("assert "):
        place, code = f"{every[-1][0]}:{every[-1][1]}, called at {place}", every[-1][2]
    return f" at {place}{': ' * bool(code)}{code}"


def with_place(fix: str, traceback: str) -> str:
    """A fix with the line of the user's code, and what names in it had; the same without a traceback."""
    frame = _last(traceback)
    if not frame:
        return fix
    place, values = f"see {frame[0]}:{frame[1]}", traceback.rpartition(f"\n{VALUES}")
    if meant := _MEANT.search(traceback):
        fix = f"write {meant[1]}{'; else ' * bool(fix)}{fix}"
    if values[1]:
        place += f", where {values[2].rstrip()}"
    elif not fix:
        place += _called(traceback) or ", where it was raised"
    return f"{fix}; {place}" if fix else place


def _called(traceback: str) -> str:
    """``, and what it gives to torch's split_group()``: of an error that a library raises for how it was called."""
    own = [found.end() for found in _FRAME.finditer(_LIBRARIES.sub(_blank, traceback))]
    call = _PACKAGE.search(traceback, own[-1]) if own else None
    if not call:
        return ""
    return f", and what it gives to {call[1]}" + ("" if call[2].startswith("_") else f"'s {call[2]}()")


def _blank(found: re.Match[str]) -> str:
    """As many characters, so that places stay the same."""
    return " " * len(found[0])


def _last(traceback: str) -> tuple[str, str, str] | None:
    """File, line and text of the innermost frame of the user's code; of a text that it executes only without a file."""
    frames = _FRAME.findall(_LIBRARIES.sub("", traceback))
    files = [one for one in frames if not one[0].startswith("<")] or frames
    return files[-1] if files else None
