"""Likely mistakes of a job that nobody else tells: the image may have another Python, nodes other cores. Pure.

Each is a warning, in a line; what the API server knows is refused (``preflight``). Why: decision 31.
"""

from __future__ import annotations

from collections.abc import Iterator

from kitctl.base.quantity import amount
from kitctl.code import syntax
from kitctl.spec.job_spec import JobSpec
from kitctl.targets import Submission


def warnings(submission: Submission) -> Iterator[str]:
    """The warnings, each with its fix."""
    spec = submission.spec
    if spec.script and (found := syntax.mistake(spec.script, _text(submission, spec.script))):
        yield f"{found}; {syntax.version()} cannot run it, and neither can the image's unless that is newer"
    yield from _crowded(spec)
    if spec.snapshots.go_with_pods:
        yield (
            "nothing is left of this job once all of its pods have ended (its end, cancel, a preemption): their "
            "volumes go with them, with all snapshots and model.pt; set snapshots.mirror"
        )


def _text(submission: Submission, script: str) -> str:
    """The text of a script that is sent; empty for one of the image."""
    sources = submission.sources
    if script in sources.files:
        return sources.files[script]
    if sources.workdir and script in sources.workdir.tree.files:
        try:
            return (sources.workdir.folder / script).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""
    return ""


def _crowded(spec: JobSpec) -> Iterator[str]:
    """More ranks than the cores that a pod may use at most."""
    limit = spec.resources.limits.get("cpu")
    if limit and spec.ranks_per_node > max(amount(limit), 1):
        fix = "raise resources.limits.cpu, or lower --procs-per-node"
        yield f"{spec.ranks_per_node} ranks of a pod share its limit of {limit} CPU; {fix}"
