"""kitctl's own options after a script, where they belong to the script: most are warned of, some are refused.

Refused are those that decide whether anything is created: who writes ``train.py --dry-run`` expects that nothing is.
A script may have such an option itself, so after ``--`` none is refused, and warned of is only what the script's text
has no trace of: neither the option's name, nor a parser that may get it from elsewhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import click

from kitctl.base.errors import UsageError
from kitctl.cli.command import documented_spelling
from kitctl.cli.common import info

_DECISIVE = frozenset({"--dry-run", "--help", "--help-all"})
# What reads arguments, by names that are in no list of add_argument: of a class, a function, another file or a library.
_READS_ARGUMENTS = re.compile(r"argv|[Pp]arse|CLI\b|\b(absl|cli|click|draccus|fire|hydra|OmegaConf|typer|tyro)\b")


def check(context: click.Context, program: Sequence[str], args: Sequence[str], source: str) -> None:
    """Look for long options of the command among a script's arguments.

    Args:
        context: of the command.
        program: the script, or ``-m`` and the module.
        args: its arguments; those after a ``--`` are certainly meant for it.
        source: the script's text. An option that it mentions is its own.

    Raises:
        UsageError: one of them decides whether anything is created.
    """
    found = [*_own(context.command, args)]
    script, name, kitctl = " ".join(program), program[-1], context.command_path
    for option in found:
        if _spelling(option[0]) in _DECISIVE:
            what = f"{option[0]} comes after {name}, so {name} would get it, and kitctl would not"
            ours = f"{kitctl} {option[0]}" if "help" in option[0] else f"{kitctl} {shlex.join(option)} -- {script}"
            raise UsageError(what, fix=f"if it is for kitctl: {ours}; for the script: {kitctl} -- {script} {option[0]}")
    if meant := [option for option in found if not _mentions(source, option[0])]:
        shown = " and ".join(option[0].partition("=")[0] for option in meant)
        before = shlex.join(word for option in meant for word in option)
        info(
            f"warning: {name} gets {shown}, and kitctl does not: what comes after a script is the script's; "
            f"fix: {kitctl} {before} -- {script}; with -- alone before {name} it is the script's"
        )


def doubt(context: click.Context, program: Sequence[str], args: Sequence[str], source: str) -> None:
    """The same for a script after ``--``, which ends kitctl's options: the script has the benefit of the doubt.

    Args:
        context: of the command.
        program: the script, or ``-m`` and the module.
        args: its arguments.
        source: the script's text; empty: unknown, and nothing is said.
    """
    if not source or (_READS_ARGUMENTS.search(source) and "add_argument" not in source):
        return
    found = [option for option in _own(context.command, args) if not _has_name(source, _spelling(option[0]))]
    if found:
        shown = " and ".join(option[0].partition("=")[0] for option in found)
        ours = shlex.join(word for option in found for word in option)
        info(
            f"warning: {program[-1]} gets {shown}, which its text does not mention; "
            f"if it is for kitctl: {context.command_path} {ours} -- {' '.join(program)}"
        )


def _has_name(source: str, spelling: str) -> bool:
    if spelling == "--help" and "add_argument" in source:
        return True  # every parser has it
    return re.search(rf"(?<!\w){_either_dash(spelling)}(?!\w)", source) is not None


def _own(command: click.Command, args: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The command's long options among arguments, each with its value."""
    switches: dict[str, bool] = {"--help": True}
    for option in command.params:
        if isinstance(option, click.Option):
            switches |= dict.fromkeys((*option.opts, *option.secondary_opts), option.is_flag)
    for word, value in zip_longest(args, args[1:], fillvalue="--"):
        if word == "--":
            return
        spelling = _spelling(word)
        if word.startswith("--") and spelling in switches:
            alone = "=" in word or switches[spelling] or value.startswith("--")
            yield (word,) if alone else (word, value)


def _spelling(word: str) -> str:
    return documented_spelling(word.partition("=")[0])


def _mentions(source: str, word: str) -> bool:
    """Whether a script's text has an option: as ``--lr``, or as ``lr: float`` of a class that becomes a parser."""
    name = _either_dash(word.partition("=")[0])
    return re.search(rf"--{name}(?![\w-])|(?<![\w.]){name}\s*:", source) is not None


def _either_dash(option: str) -> str:
    """A pattern for an option's name, with dashes or as an identifier."""
    return "[-_]".join(map(re.escape, re.split("[-_]", option.strip("-"))))
