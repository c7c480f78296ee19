"""kitctl's own options after a script, where they belong to the script: most are warned of, some are refused.

Refused are those that decide whether anything is created: who writes ``train.py --dry-run`` expects that nothing is.
A script may have such an option itself, so ``--`` before the script ends both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click

from kitctl.base.errors import UsageError
from kitctl.cli.command import documented_spelling
from kitctl.cli.common import info

_DECISIVE = frozenset({"--dry-run", "--help", "--help-all"})


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
            f"fix: {kitctl} {before} -- {script}; with -- before {name} nothing is said"
        )


def _own(command: click.Command, args: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The command's long options among arguments, each with its value."""
    switches: dict[str, bool] = {"--help": True}
    for option in command.params:
        if isinstance(option, click.Option):
            switches |= dict.fromkeys((*option.opts, *option.secondary_opts), option.is_flag)
    words = iter(args)
    for word in words:
        if word == "--":
            return
        spelling = _spelling(word)
        if not word.startswith("--") or spelling not in switches:
            continue
        if "=" in word or switches[spelling]:
            yield (word,)
        else:
            yield (word, *([value] if (value := next(words, None)) is not None else ()))


def _spelling(word: str) -> str:
    return documented_spelling(word.partition("=")[0])


def _mentions(source: str, word: str) -> bool:
    """Whether a script's text has an option: as ``--lr``, or as ``lr: float`` of a class that becomes a parser."""
    name = "[-_]".join(map(re.escape, re.split("[-_]", word.partition("=")[0].strip("-"))))
    return re.search(rf"--{name}(?![\w-])|(?<![\w.]){name}\s*:", source) is not None
