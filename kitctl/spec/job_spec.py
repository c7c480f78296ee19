"""The spec of a job: typed, frozen, and valid from its construction on.

What never lives here: the keys themselves (``job_keys``), reading files or flags (``specfile``), the checks of one key
against another (``rules``), Kubernetes objects (``render``).

Why: decision 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache

import msgspec
from msgspec.structs import force_setattr

from kitctl.base.errors import Problem, SpecError
from kitctl.base.field_type import FieldType
from kitctl.spec import rules
from kitctl.spec.job_keys import JobKeys


class JobSpec(JobKeys, frozen=True, kw_only=True):
    """One training job."""

    def __post_init__(self) -> None:
        """Check all fields; equal jobs get equal specs, however they are written.

        Raises:
            SpecError: with one line for every problem; it names fields as a job file does.
        """
        _check(_job_type().object_errors(self))
        for name, value in ((name, getattr(self, name)) for name in self.__struct_fields__):
            if isinstance(value, list):
                force_setattr(self, name, tuple(value))
        if self.min_nodes == self.max_nodes > 0:
            force_setattr(self, "nodes", self.min_nodes)
        if self.ranks_by_node and len(set(self.ranks_by_node)) == 1 and len(self.ranks_by_node) == self.max_nodes:
            force_setattr(self, "procs_per_node", self.ranks_by_node[0])
        if self.command and not self.name:
            force_setattr(self, "name", rules.default_name(self))
        _check(rules.problems(self))

    def in_namespace(self, namespace: str) -> JobSpec:
        """The job in that namespace, unless it names one."""
        return self if self.namespace else msgspec.structs.replace(self, namespace=namespace)

    def digest(self, sources: Mapping[str, str]) -> str:
        """A digest of the spec and of the files that are sent with the job: equal jobs, equal digests."""
        return hashlib.sha256(msgspec.json.encode((self, sources), order="sorted")).hexdigest()[:16]


@cache
def _job_type() -> FieldType:
    return FieldType(JobSpec)


def _check(problems: Iterable[Problem]) -> None:
    if found := list(problems):
        raise SpecError(found)
