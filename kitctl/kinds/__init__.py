"""The kinds of Kubernetes object that run a job's nodes: a table, one module for each kind.

Nothing else in kitctl depends on which kind a job has: it takes the entry from here and uses its fields and methods.
What never lives here: requests to an API server (``targets/cluster``), and the objects' form (``manifests/``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kitctl.kinds.indexed_job import IndexedJob
from kitctl.kinds.job_kind import JobKind, Result
from kitctl.kinds.pytorch_job import PyTorchJob

__all__ = ["AUTO", "DEFAULT", "KINDS", "JobKind", "Result", "of_object", "of_resource", "of_spec"]

AUTO: Final = "auto"  # in a job file: the first kind that the user may create
DEFAULT: Final[JobKind] = IndexedJob()  # every cluster has it
KINDS: Final[Mapping[str, JobKind]] = {kind.name: kind for kind in (DEFAULT, PyTorchJob())}  # the preferred ones first
_BY_RESOURCE: Final[Mapping[str, JobKind]] = {kind.resource: kind for kind in KINDS.values()}


def of_spec(name: str) -> JobKind:
    """The kind that a job file names; ``auto`` is the default one."""
    return KINDS.get(name, DEFAULT)


def of_object(job: Mapping[str, Any]) -> JobKind:
    """The kind of a job's object, by its Kubernetes ``kind``.

    Raises:
        KeyError: no job is such an object.
    """
    return _BY_RESOURCE[job["kind"]]


def of_resource(resource: str) -> JobKind | None:
    """The kind whose objects have that Kubernetes ``kind``; None: no job is such an object."""
    return _BY_RESOURCE.get(resource)
