"""Arguments of ``argparse`` with ``type=bool``, for which any text is True, ``False`` as well.

A rank says so at its end if it was given such a text. Imports no argparse.
"""

from __future__ import annotations

import atexit
import sys
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.outcome.rank_output import TAKEN_FOR_TRUE

NO: Final = frozenset({"false", "f", "no", "n", "off", "0", "none"})


class BooleanArguments:
    """The arguments that a script has parsed."""

    def __init__(self) -> None:
        self._told = ""

    def watch(self, module: ModuleType) -> None:
        """Watch what argparse makes of a text.

        Args:
            module: ``argparse``.
        """
        watch_calls(module.ArgumentParser, "_get_value", self._converted)  # there is no public one

    def _converted(self, _parser: Any, action: Any, text: Any) -> None:
        if action.type is bool and text.lower() in NO:
            name = next(iter(action.option_strings), action.dest)
            if not self._told:  # the agent has imported argparse: ranks that have nothing to tell get no exit handler
                atexit.register(self.tell)
            self._told = f"{TAKEN_FOR_TRUE}{name} {text}"

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {self._told}\n")
