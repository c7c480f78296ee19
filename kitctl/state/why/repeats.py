"""What a page has said already: it says nothing twice. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kitjob.report import VALUES

_RANK: Final = re.compile(r"^rank \d+:? ")
_GOES_ON: Final = re.compile(r" \w")
_SAME: Final = (
    (re.compile(r"\b(?:ErrImagePull|ImagePullBackOff)\b"), "a failed pull"),  # the two alternate
    (re.compile(r"(?<!exit code )(?<!SIG)(?<![\w.])\d[\w.:/-]*"), "#"),  # counts, times, addresses
)


def says(told: str, text: str) -> bool:
    """Whether a text's words were told, but for those that were left out of it."""
    said, parts = " ".join(told.split()), " ".join(text.split()).split("…")
    return any(parts) and all(part in said for part in parts)


def shorter(reason: str, cause: str) -> str:
    """What a reason says besides the cause: ``node 1: rank 1 failed, no restart left of 2``; whole if that was cut."""
    text, said = " ".join(reason.split()), _RANK.sub("", cause)
    if says(cause, text):
        return ""
    if said and "…" not in said and said in text:
        before, _, after = text.partition(said)
        return _joined(before, after)
    start, end = text.find("("), text.find("…)")  # the reason may be the one that was cut
    return (
        _joined(text[: start + 1], text[end + 1 :]) if 0 <= start < end and says(cause, text[start + 1 : end]) else text
    )


def sequel(reason: str, cause: str) -> str:
    """What a reason goes on with after the cause that it begins with, as in ``: they train models of their own``."""
    after = " ".join(reason.split()).removeprefix(cause) if cause else ""
    return after if after.startswith((": ", "; ")) else ""


def _joined(before: str, after: str) -> str:
    """What was around the cause; nothing if that begins a sentence, which would be left without its beginning."""
    if not before and _GOES_ON.match(after):
        return ""
    if before.endswith("(") and after.startswith(")"):
        before, after = before[:-1], after[1:]
    return f"{before.rstrip(' :')}{after}".strip(" ,;:")


def unsaid(lines: Sequence[str], cause: str) -> Sequence[str]:
    """Lines without the last one, if the cause says that: an exception after its traceback. What names had stays."""
    values = lines[-1:] if lines and lines[-1].startswith(VALUES) else []
    own = lines[: len(lines) - len(values)]
    return [*own[:-1], *values] if own and says(cause, own[-1]) else lines


def topic(cause: str, name: str) -> str:
    """What stays the same of a job's cause while it lasts: not its pods' names, counts, times, and steps of a pull."""
    text = re.sub(rf"\b{re.escape(name)}-[\w-]+", "a pod", cause)
    for pattern, replacement in _SAME:
        text = pattern.sub(replacement, text)
    return text
