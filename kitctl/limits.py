"""What no process and no API server takes, wherever it stands in a job: in texts, numbers and times. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kitctl.errors import Problem
from kitctl.quantity import seconds
from kitctl.spec import JobSpec

LONGEST: Final = 128 * 1024  # bytes of an argument, or of a variable with its name: Linux' MAX_ARG_STRLEN
LARGEST: Final = 2**31 - 1  # Kubernetes counts with 32 bits
_NO_PROCESS_TAKES: Final = re.compile(r"[\0\ud800-\udfff]")
_TIMES: Final = {  # by section, and whether it may be no time at all
    "rendezvous": {"joinTimeout": False, "lastCall": True},
    "snapshots": {"every": False},
    "policy": {"deadline": False, "ttl": True, "gracePeriod": True, "hangTimeout": False},
}


def texts(spec: JobSpec) -> Iterator[Problem]:
    """No process takes NUL, nor what is no UTF-8, nor more at once than the kernel hands over."""
    for field, text in _leaves(msgspec.to_builtins(spec)):
        if isinstance(text, str) and _NO_PROCESS_TAKES.search(text):
            yield Problem.of(field, f"{text!r} cannot be handed to a process", "give UTF-8 text without NUL")
        elif isinstance(text, str) and len(field) + len(text.encode()) >= LONGEST:
            what = f"{len(text.encode())} bytes are more than a process takes at once"
            yield Problem.of(field, what, "put them into a file that travels: sync")


def numbers(spec: JobSpec) -> Iterator[Problem]:
    """No number is beyond what Kubernetes can count."""
    for field, number in _leaves(msgspec.to_builtins(spec)):
        if isinstance(number, int) and number > LARGEST:
            yield Problem.of(field, f"{number} is more than can be counted", f"give at most {LARGEST}")


def times(spec: JobSpec) -> Iterator[Problem]:
    """No time is beyond what Kubernetes can count; nor none at all, where that would end everything at once."""
    given = msgspec.to_builtins(spec)
    for section, fields in _TIMES.items():
        for field, may_be_none in fields.items():
            text = given.get(section, {}).get(field, "auto")
            time = seconds(text) if text[0].isdecimal() else 1
            if time > LARGEST:
                yield Problem.of(f"{section}.{field}", f"{text} is longer than 68 years", "give less")
            elif not (time or may_be_none):
                yield Problem.of(f"{section}.{field}", f"{text} is no time at all", "give at least 1s")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each scalar with where it stands, as in ``volumes[0].mountPath``."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _leaves(part, f"{path}[{number}]")
    else:
        yield path, value
