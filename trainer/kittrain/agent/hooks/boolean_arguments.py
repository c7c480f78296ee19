"""Arguments of ``argparse`` with ``type=bool``, for which any text is True, ``False`` as well.

A rank says so at its end if it was given such a text. Imports no argparse.
"""

from __future__ import annotations

import functools
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

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
        parser = module.ArgumentParser
        convert = getattr(parser, "_get_value", None)  # there is no public one
        if convert is None:
            return

        @functools.wraps(convert)
        def noted_value(own: Any, action: Any, text: Any) -> Any:
            with suppress(Exception):
                if action.type is bool and text.lower() in NO:
                    name = next(iter(action.option_strings), action.dest)
                    self._told = f"{TAKEN_FOR_TRUE}{name} {text}"
            return convert(own, action, text)

        parser._get_value = noted_value  # noqa: SLF001

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {self._told}\n")
