"""kitctl: from one job spec to a multi-node PyTorch run.

What lives here: the spec, the manifests rendered from it, the targets that run it, and the command line.
What never does: torch. The code that trains lives in ``kittrain`` (the folder trainer/), and the two never import each
other; what one writes and the other reads is declared in ``kitjob``, which both import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kitjob import __version__

if TYPE_CHECKING:
    from kitctl.api.client import Client
    from kitctl.input.specfile import load
    from kitctl.spec.job_spec import JobSpec

__all__ = ["Client", "JobSpec", "__version__", "load"]

# The Python API, by module. It is imported when it is used: the command line would start later otherwise.
_API: Final = {"Client": "api.client", "JobSpec": "spec.job_spec", "load": "input.specfile"}


def __getattr__(name: str) -> Any:
    """Import a part of the Python API.

    Raises:
        AttributeError: it is none.
    """
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_API[name]}"), name)
