"""Parses command lines of other launchers into fields of a job.

    kitctl submit -- torchrun --nnodes 2 --nproc-per-node 4 train.py 50 10

A line that cannot be understood is an error with the line to use instead. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

from kitctl.base.errors import UsageError
from kitctl.input.launchers import LAUNCHERS, PREFIXES, UNSUPPORTED, Launcher, Option
from kitctl.input.sizes import EXAMPLE, size

_PYTHON: Final = re.compile(r"python(3(\.\d+)?)?")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PYTHON_VALUES: Final = frozenset({"-W", "-X"})


@dataclass
class LaunchLine:
    """The job that a pasted line describes.

    Attributes:
        fields: of a job file, without ``command`` and ``args``.
        program: ``SCRIPT ARGS`` or ``-m MODULE ARGS``.
        launcher: its name.
        local_rank: the argument for the local rank that it adds, such as ``--local-rank``; empty: none.
        left_out: its options that kitctl has no use for, as written.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    program: tuple[str, ...] = ()
    launcher: str = ""
    local_rank: str = ""
    left_out: list[str] = field(default_factory=list)

    def equivalent(self, fields: Mapping[str, Any]) -> str:
        """The command line of kitctl with these fields of a job."""
        flags = [word for name, spelling in _FLAGS.items() if name in fields for word in (spelling, str(fields[name]))]
        if restarts := fields.get("policy", {}).get("maxRestarts"):
            flags += ["--max-restarts", str(restarts)]
        flags += [word for name, value in fields.get("env", {}).items() for word in ("-e", f"{name}={value}")]
        return shlex.join(["kitctl", "submit", *flags, "--", *self.program])


_FLAGS: Final = {"nodes": "--nodes", "gpusPerNode": "--gpus-per-node", "procsPerNode": "--procs-per-node"}


def parse(words: Sequence[str], given: Mapping[str, Any] = MappingProxyType({})) -> LaunchLine | None:
    """The job that a line describes; None if it starts with a script or a module, as kitctl's own arguments do.

    Args:
        words: of the line.
        given: fields of the job that kitctl's own flags set: some launchers give the number of all ranks only.

    Raises:
        UsageError: it cannot be understood; the fix is a line that can.
    """
    line = LaunchLine()
    rest = _environment(tuple(words), line)
    name = PurePath(rest[0]).name if rest else ""
    if name in UNSUPPORTED:
        raise UsageError(f"{name} cannot run inside a job", fix=f"give the script, as in {EXAMPLE}")
    if name not in LAUNCHERS and not _PYTHON.fullmatch(name):
        if line.fields and rest:
            raise UsageError(f"{words[0]} comes before the script", fix=f"use -e, as in kitctl submit -e {words[0]}")
        return None
    _launch(name, rest[1:], line, given)
    return line


def _environment(words: tuple[str, ...], line: LaunchLine) -> tuple[str, ...]:
    """Take ``K=V`` words, and those like ``env``, from the front of a line."""
    rest = words
    while rest and (rest[0] in PREFIXES or _ASSIGNMENT.fullmatch(rest[0])):
        if found := _ASSIGNMENT.fullmatch(rest[0]):
            line.fields.setdefault("env", {})[found[1]] = found[2]
        rest = rest[1:]
    return rest


def _launch(name: str, words: tuple[str, ...], line: LaunchLine, given: Mapping[str, Any]) -> None:
    """Read the words after a launcher, or after ``python``."""
    if _PYTHON.fullmatch(name):
        program = _python(words)
        if program[0] != "-m" or program[1] not in LAUNCHERS:
            line.launcher, line.program = line.launcher or name, program
            return
        name, words = program[1], program[2:]
    line.launcher, launcher = name, LAUNCHERS[name]
    if name == "accelerate":
        if words[:1] != ("launch",):
            raise UsageError("accelerate: only `accelerate launch` starts a script", fix=f"use {EXAMPLE}")
        words = words[1:]
    settings, words = _read_options(line, launcher, words)
    line.local_rank = launcher.local_rank
    line.fields |= size(name, settings, given)
    if "module" in settings:
        words = ("-m", *words)
    if launcher.python and words and _PYTHON.fullmatch(PurePath(words[0]).name):
        words = _python(words[1:])
    if not words or words == ("-m",):
        raise UsageError(f"{name}: the line has no script", fix=f"use a line like {EXAMPLE}")
    line.program = words


def _python(words: tuple[str, ...]) -> tuple[str, ...]:
    """The program after ``python`` and its options, which the ranks do not need."""
    rest = words
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        if rest[0].startswith("-c"):
            raise UsageError("python -c cannot be sent to a cluster", fix=f"put it into a script: {EXAMPLE}")
        rest = rest[2:] if rest[0] in _PYTHON_VALUES else rest[1:]
    if not rest or rest == ("-m",):
        raise UsageError("python: the line has no script", fix=f"use a line like {EXAMPLE}")
    return rest


def _read_options(
    line: LaunchLine, launcher: Launcher, words: tuple[str, ...]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Values by meaning, and the words from the program on."""
    settings: dict[str, str] = {}
    rest = words
    while rest and rest[0].startswith("-") and rest[0] != "--":
        spelling, sign, value = rest[0].partition("=")
        option = _find(line.launcher, launcher, spelling)
        following = 0 if sign else option.values
        if len(rest) <= following:
            raise UsageError(f"{line.launcher}: {spelling} needs a value", fix=f"use a line like {EXAMPLE}")
        value = value if sign else " ".join(rest[1 : 1 + following])
        rest = rest[1 + following :]
        _take(line, settings, option, spelling, value)
    return settings, rest[1:] if rest[:1] == ("--",) else rest


def _find(name: str, launcher: Launcher, spelling: str) -> Option:
    """An option by its spelling, or by the beginning of its name if the launcher takes that."""
    key = spelling.lstrip("-").replace("_", "-")
    if key in launcher.options:
        return launcher.options[key]
    near = [option for full, option in launcher.options.items() if launcher.abbreviates and full.startswith(key)]
    if len(key) > 1 and near and all(option == near[0] for option in near):
        return near[0]
    raise UsageError(f"{name}: kitctl does not know the option {spelling}", fix=f"leave it out, or use {EXAMPLE}")


def _take(line: LaunchLine, settings: dict[str, str], option: Option, spelling: str, value: str) -> None:
    """Record an option's value."""
    if option.meaning == "unsupported":
        what = f"{line.launcher}: {spelling} is not passed to the ranks"
        raise UsageError(what, fix="leave it out, and make the setting in the script itself")
    if option.meaning == "set by kitctl":
        line.left_out.append(spelling)
    elif option.meaning == "env":
        pair = f"{option.variable}={value or 'true'}" if option.variable else value
        if not _ASSIGNMENT.fullmatch(pair):
            raise UsageError(f"{line.launcher}: {spelling} {value} copies a variable", fix=f"use kitctl's -e {value}")
        _environment((pair,), line)
    else:
        settings[option.meaning] = value
