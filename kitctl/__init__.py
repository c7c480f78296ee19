"""kitctl: from one job spec to a multi-node PyTorch run.

What lives here: the spec, the manifests rendered from it, the targets that run it, and the command line.
What never does: torch. The code that trains lives in ``kittrain`` (the folder trainer/), and the two never import each
other; what one writes and the other reads is declared in ``kitjob``, which both import.
"""

from __future__ import annotations

from kitjob import __version__

TYPE_CHECKING = False  # not typing's: until the command line is running, Ctrl-C prints a traceback, so it starts soon
if TYPE_CHECKING:
    from typing import Any, Final

    from kitctl.api.client import Client
    from kitctl.api.job import Job
    from kitctl.base.errors import (
        ConflictError,
        Forbidden,
        JobCancelled,
        JobFailed,
        JobNotFound,
        KitError,
        NotFinished,
        NotFound,
        SpecError,
        TargetError,
        Unavailable,
        UnsupportedError,
        UsageError,
        WaitTimeout,
    )
    from kitctl.input.specfile import load
    from kitctl.spec.job_spec import JobSpec

__all__ = [
    "Client",
    "ConflictError",
    "Forbidden",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobSpec",
    "KitError",
    "NotFinished",
    "NotFound",
    "SpecError",
    "TargetError",
    "Unavailable",
    "UnsupportedError",
    "UsageError",
    "WaitTimeout",
    "__version__",
    "load",
]

# The Python API, by module. It is imported when it is used: the command line would start later otherwise.
_API: Final = (
    ("Client", "api.client"),
    ("Job", "api.job"),
    ("JobSpec", "spec.job_spec"),
    ("load", "input.specfile"),
)


def __getattr__(name: str) -> Any:
    """Import a part of the Python API.

    Raises:
        AttributeError: it is none.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as above

    return getattr(import_module(f"{__name__}.{dict(_API).get(name, 'base.errors')}"), name)


def __dir__() -> list[str]:
    return __all__
