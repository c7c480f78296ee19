"""What a forked process has from what ran before the fork, and cannot undo: then it has to start as a new interpreter.

The interpreter and libraries read some of the environment once, as they start or are imported; and a module that is
imported already hides a user's own of the same name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Final

# Variables that are read so early, by how their names begin: the dynamic linker's, Python's, thread pools', torch's.
READ_EARLY: Final = (
    *("LD_", "MALLOC_", "GLIBC_TUNABLES", "LANG", "LC_", "PYTHON", "LOGLEVEL"),
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
READ_LATE: Final = "TORCHINDUCTOR_CACHE_DIR"  # torch sets it itself
OWN: Final = ("__main__", "kittrain")  # a new interpreter would have them from the same place


def stale(then: Mapping[str, str], now: Mapping[str, str], folder: Path | None = None) -> str:
    """Why a process that was forked has to start as a new interpreter; empty where it need not.

    Args:
        then: the environment that its modules were imported in.
        now: the environment that it is to have.
        folder: where a script looks for modules first; None where none runs.
    """
    differing = sorted(name for name in then.keys() | now.keys() if _early(name) and then.get(name) != now.get(name))
    if differing:
        return f"{', '.join(differing)} was read before it had the job's value"
    hidden = sorted(hidden_modules(folder)) if folder else []
    return f"{', '.join(hidden)} in {folder} would be hidden by modules that are imported already" if hidden else ""


def hidden_modules(folder: Path) -> Iterator[str]:
    """Modules in a folder that ``import`` would not find there, since others of these names are imported."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = _module_name(entry)
            module = sys.modules.get(name)
            if module and name not in OWN and _elsewhere(module, folder):
                yield entry.name


def _early(name: str) -> bool:
    return name.startswith(READ_EARLY) and not name.startswith(READ_LATE)


def _module_name(entry: os.DirEntry[str]) -> str:
    """What ``import`` knows a file or folder as; empty for those that are no modules."""
    suffix = next((one for one in all_suffixes() if entry.name.endswith(one)), None)
    if suffix:
        return entry.name.removesuffix(suffix)
    return entry.name if entry.name in sys.modules and Path(entry, "__init__.py").is_file() else ""


def _elsewhere(module: ModuleType, folder: Path) -> bool:
    """Whether a module was found in another folder; what is built in or frozen comes before all folders."""
    spec = module.__spec__
    if spec is None or spec.origin is None or not spec.has_location:
        return False
    origin = Path(spec.origin).resolve()
    return (origin.parent.parent if spec.submodule_search_locations else origin.parent) != folder.resolve()
