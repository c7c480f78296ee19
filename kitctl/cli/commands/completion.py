"""``kitctl completion``: the script that makes a shell complete commands, options and job names."""

from __future__ import annotations

import click

from kitctl.cli.command import Command
from kitctl.cli.common import echo

EPILOG = """\b
Examples:
  source <(kitctl completion bash)
  kitctl completion zsh > ~/.zfunc/_kitctl
  kitctl completion fish > ~/.config/fish/completions/kitctl.fish
"""
# A key of --set ends with =, and its value follows without a space.
_NO_SPACE = ("COMPREPLY+=($value)", "COMPREPLY+=($value); [[ $value != *= ]] || compopt -o nospace")


@click.command(cls=Command, epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None, "click supports every choice"
    root = ctx.find_root()
    script = completion(root.command, {}, "kitctl", "_KITCTL_COMPLETE").source()
    echo(script.replace(*_NO_SPACE) if shell == "bash" else script)
