"""Tells of a file that hides a module of the standard library, in Python 3.13's words, where an older one does not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Final

STANDARD: Final = Path(str(sys.modules["os"].__file__)).parent
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})  # where setuptools has a distutils of its own
HIDES: Final = (
    " (consider renaming {file!r} since it has the same name as the standard library module named {name!r} and "
    "prevents importing that standard library module)"
)


def tell_shadowed(error: BaseException) -> None:
    """Add it to an AttributeError for a name that such a file's module does not have."""
    if not (isinstance(error, AttributeError) and isinstance(error.obj, ModuleType) and "consider" not in str(error)):
        return
    name, file = error.obj.__name__, getattr(error.obj, "__file__", None)
    own = file and not Path(file).is_relative_to(STANDARD) and INSTALLED.isdisjoint(Path(file).parts)
    if own and name in sys.stdlib_module_names:
        error.args = (f"{error}{HIDES.format(file=file, name=name)}",)
