"""Limits of processes and of the Kubernetes API for every text, number and time of a job. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kitctl.base.errors import Problem
from kitjob.document import LIMIT, selection, written
from kitjob.durations import seconds
from kitjob.fields import BYTES, RESOURCES_IN_BYTES
from kitjob.names import LOST_AFTER

if TYPE_CHECKING:
    from kitjob.job_keys import JobKeys

MAX_TEXT_BYTES: Final = 128 * 1024  # an argument, or a variable with its name: Linux' MAX_ARG_STRLEN
MAX_INT: Final = 2**31 - 1  # Kubernetes uses 32 bits
_INVALID_TEXT: Final = re.compile(r"[\0\ud800-\udfff]")
_TIMES: Final = {  # by section and field: the least and the most, in seconds
    "rendezvous": {"joinTimeout": (1, MAX_INT), "lastCall": (0, MAX_INT)},
    "snapshots": {"every": (1, MAX_INT)},
    "policy": {
        "deadline": (1, MAX_INT),
        "ttl": (0, MAX_INT),
        "gracePeriod": (0, MAX_INT),
        "hangTimeout": (1, MAX_INT),
        "lostAfter": LOST_AFTER,
        "growEvery": (0, MAX_INT),
    },
}


def texts(spec: JobKeys) -> Iterator[Problem]:
    """Processes take no NUL, only UTF-8, and no text longer than the kernel allows."""
    for field, text in _leaves(written(spec)):
        if isinstance(text, str) and _INVALID_TEXT.search(text):
            yield Problem.of(field, f"{text!r} cannot be passed to a process", "use UTF-8 text without NUL")
        elif isinstance(text, str) and len(field) + len(text.encode()) >= MAX_TEXT_BYTES:
            what = f"{len(text.encode())} bytes are more than a process accepts"
            yield Problem.of(field, what, "put them into a file, and name it in send")


def document(spec: JobKeys) -> Iterator[Problem]:
    """The settings that agents and ranks read fit into a variable."""
    told = selection(spec)
    size = len(json.dumps(told, ensure_ascii=False).encode(errors="replace"))
    if size > LIMIT:
        longest, _ = max(_leaves(told), key=lambda leaf: len(str(leaf[1])))
        what = f"with this the nodes are told {size} bytes of settings, and a variable holds {LIMIT}"
        yield Problem.of(longest, what, "make it shorter")


def numbers(spec: JobKeys) -> Iterator[Problem]:
    """Numbers fit into 32 bits."""
    for field, number in _leaves(written(spec)):
        if isinstance(number, int) and number > MAX_INT:
            yield Problem.of(field, f"{number} is too large", f"use at most {MAX_INT}")


def times(spec: JobKeys) -> Iterator[Problem]:
    """Times fit into 32 bits of seconds, and are not so short that the job could not run."""
    given = written(spec)
    for section, fields in _TIMES.items():
        for field, (least, most) in fields.items():
            text = given.get(section, {}).get(field, "auto")
            time = seconds(text) if text[0].isdecimal() else least
            if time > most:
                long = f"{text} is longer than {'68 years' if most == MAX_INT else f'{most} s'}"
                yield Problem.of(f"{section}.{field}", long, "use less")
            elif time < least:
                short = f"{text} is {f'shorter than {least} s' if time else 'zero'}"
                yield Problem.of(f"{section}.{field}", short, f"use at least {least}s")


def amounts(spec: JobKeys) -> Iterator[Problem]:
    """Memory and disks have a unit; other resources are counted. A mapping's type is the same for all of its values."""
    for part, given in (("requests", spec.resources.requests), ("limits", spec.resources.limits)):
        for name, amount in given.items():
            if re.search(RESOURCES_IN_BYTES, name) and not re.search(BYTES, amount):
                from kitctl.base.units import advice  # noqa: PLC0415 - only errors need it

                yield Problem.of(f"resources.{part}.{name}", *advice(amount, BYTES))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each scalar with its path, as in ``volumes[0].mountPath``."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _leaves(part, f"{path}[{number}]")
    else:
        yield path, value
