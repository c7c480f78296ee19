"""The spec of a job: typed, frozen, and valid from its construction on.

What never lives here: the keys themselves (``job_keys``), reading files or flags (``specfile``), the checks of one key
against another (``rules``), Kubernetes objects (``render``).

Why: decision 6.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache

from kitctl.base.errors import Problem, SpecError
from kitctl.base.field_type import FieldType
from kitctl.spec import rules
from kitjob.document import written
from kitjob.job_keys import JobKeys
from kitjob.record import replace


class JobSpec(JobKeys):
    """One training job."""

    def __post_init__(self) -> None:
        """Check all fields; equal jobs get equal specs, however they are written.

        Raises:
            SpecError: with one line for every problem; it names fields as a job file does.
        """
        _check(_job_type().object_errors(self))
        values = vars(self)
        values.update({name: tuple(value) for name, value in values.items() if isinstance(value, list)})
        nodes, plus, spares = str(self.nodes).partition("+")
        if plus:
            values |= {"nodes": nodes, "spares": int(spares)}
        if self.min_nodes == self.max_nodes > 0:
            values["nodes"] = self.min_nodes
        if self.ranks_by_node and len(set(self.ranks_by_node)) == 1 and len(self.ranks_by_node) == self.max_nodes:
            values["procs_per_node"] = self.ranks_by_node[0]
        if self.command and not self.name:
            values["name"] = rules.default_name(self)
        _check(rules.problems(self))

    def in_namespace(self, namespace: str) -> JobSpec:
        """The job in that namespace, unless it names one."""
        return self if self.namespace else replace(self, namespace=namespace)

    def digest(self, sources: Mapping[str, str]) -> str:
        """A digest of the spec and of the files that are sent with the job: equal jobs, equal digests."""
        return hashlib.sha256(json.dumps((written(self), sources), sort_keys=True).encode()).hexdigest()[:16]


@cache
def _job_type() -> FieldType:
    return FieldType(JobSpec)


def _check(problems: Iterable[Problem]) -> None:
    if found := list(problems):
        raise SpecError(found)
