"""Decides whether a forked process must exec a new interpreter, because it inherited state that it cannot undo.

The interpreter and libraries read some variables once, at start or import. And a module that is already imported hides
a user's module of the same name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Final

# Prefixes of variables that the dynamic linker, the C library and Python read at start.
READ_AT_START: Final = ("LD_", "MALLOC_", "GLIBC_TUNABLES", "LANG", "LC_", "PYTHON")
# Prefixes of variables that thread pools and torch read when they are imported.
READ_AT_IMPORT: Final = (
    "LOGLEVEL",
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NPY_", "NUMEXPR_", "ATEN_"),
    *(
        "TORCH_LOGS",
        "TORCH_TRACE",
        "TORCH_DISTRIBUTED_DEBUG",
        "TORCH_COMPILE",
        "TORCHDYNAMO_",
        "PYTORCH_JIT",
        "TRITON_",
    ),
    "TORCHINDUCTOR_",
)
READ_LATE: Final = "TORCHINDUCTOR_CACHE_DIR"  # torch sets it by itself
OWN: Final = ("__main__", "kittrain")  # a new interpreter would import them from the same place


def reexec_reason(then: Mapping[str, str], now: Mapping[str, str], folders: Sequence[Path] = ()) -> str:
    """Why a forked process must exec a new interpreter; empty if it need not.

    Args:
        then: the environment in which its modules were imported.
        now: its new environment.
        folders: what a script has on its ``sys.path`` before what its modules were imported from.
    """
    differing = sorted(name for name in then.keys() | now.keys() if _early(name) and then.get(name) != now.get(name))
    if differing:
        return f"{', '.join(differing)} was read before it had the job's value"
    for folder in folders:
        if hidden := sorted(hidden_modules(folder)):
            return f"{', '.join(hidden)} in {folder} would be hidden by modules that are imported already"
    return ""


def read_at_import(name: str) -> bool:
    """Whether torch, or a library that it needs, reads a variable only at its import."""
    return name.startswith(READ_AT_IMPORT) and not name.startswith(READ_LATE)


def hidden_modules(folder: Path) -> Iterator[str]:
    """Modules in a folder that are hidden by already imported modules of the same name."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = _module_name(entry)
            module = sys.modules.get(name)
            if module and name not in OWN and _elsewhere(module, folder):
                yield entry.name


def _early(name: str) -> bool:
    return name.startswith(READ_AT_START) or read_at_import(name)


def _module_name(entry: os.DirEntry[str]) -> str:
    """The module name of a file or folder; empty if it is not a module."""
    suffix = next((one for one in all_suffixes() if entry.name.endswith(one)), None)
    if suffix:
        return entry.name.removesuffix(suffix)
    return entry.name if entry.name in sys.modules and Path(entry, "__init__.py").is_file() else ""


def _elsewhere(module: ModuleType, folder: Path) -> bool:
    """Whether a module was imported from another folder; built-in and frozen modules come before all folders."""
    spec = module.__spec__
    if spec is None or spec.origin is None or not spec.has_location:
        return False
    origin = Path(spec.origin).resolve()
    return (origin.parent.parent if spec.submodule_search_locations else origin.parent) != folder.resolve()
