"""The kinds of Kubernetes object that run a job's nodes: a table, one module for each kind.

Other distributions add kinds by an entry point of the group ``kitctl.kinds``, which names a subclass of ``JobKind``.
They are looked up when a built-in kind does not fit, and on a cluster.

Nothing else in kitctl depends on which kind a job has: it takes the entry from here and uses its fields and methods.
What never lives here: requests to an API server (``targets/cluster``), and the objects' form (``manifests/``).

Why: decision 34.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kitctl.base import plugins
from kitctl.kinds.indexed_job import IndexedJob
from kitctl.kinds.job_kind import JobKind, Result
from kitctl.kinds.job_set import JobSet
from kitctl.kinds.pytorch_job import PyTorchJob
from kitctl.kinds.train_job import TrainJob

__all__ = ["AUTO", "DEFAULT", "KINDS", "JobKind", "Result", "all_kinds", "of_key", "of_object", "of_spec"]

AUTO: Final = "auto"  # in a job file: the first kind that the user may create
DEFAULT: Final[JobKind] = IndexedJob()  # every cluster has it
# The preferred ones first.
KINDS: Final[Mapping[str, JobKind]] = {kind.name: kind for kind in (DEFAULT, TrainJob(), JobSet(), PyTorchJob())}


@cache
def all_kinds() -> Mapping[str, JobKind]:
    """The built-in kinds, then the installed ones, by name.

    Raises:
        UsageError: an installed one cannot be imported.
    """
    installed = {kind.name: kind for kind in (make() for make in plugins.load_all(plugins.KINDS))}
    return {**KINDS, **{name: kind for name, kind in installed.items() if name not in KINDS}}


def of_spec(name: str) -> JobKind:
    """The kind that a job file names; ``auto`` is the default one."""
    return KINDS.get(name) or (DEFAULT if name == AUTO else all_kinds().get(name, DEFAULT))


def of_object(job: Mapping[str, Any]) -> JobKind:
    """The kind of a job's object, by its API group and its Kubernetes ``kind``: ``Job`` of another group is another.

    Raises:
        KeyError: no job is such an object.
    """
    key = f"{job['kind']}.{job['apiVersion'].rpartition('/')[0]}"
    kind = of_key(key)
    if kind is None:
        raise KeyError(key)
    return kind


def of_key(key: str) -> JobKind | None:
    """The kind whose objects are that resource, ``Job.batch``; None: no job is such an object."""
    return _with_key(key, KINDS) or _with_key(key, all_kinds())


def _with_key(key: str, table: Mapping[str, JobKind]) -> JobKind | None:
    return next((kind for kind in table.values() if kind.key == key), None)
