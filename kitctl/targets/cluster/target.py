"""The verbs of the cluster target: each is a few requests, and can be run again after a crash between any two."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from kitctl import names
from kitctl.doctor import Finding
from kitctl.errors import ConflictError, Forbidden, NotFound, TargetError, UnsupportedError
from kitctl.facts import JobFacts, Report
from kitctl.faults import FaultInjection
from kitctl.logs import Line
from kitctl.targets import Change, Kept, Submission
from kitctl.targets.cluster import checks, claims, companion, facts, lifecycle, preflight, reading, striking, submitting
from kitctl.targets.cluster.access import Place
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.existing import POLL_SECONDS, gone
from kitctl.targets.cluster.keptlogs import KeptLogs
from kitctl.targets.cluster.lives import lost
from kitctl.targets.cluster.reading import Source
from kitctl.targets.cluster.resources import Object
from kitctl.targets.conflicts import check_scale, keeps_none

OURS: Final = f"{names.LABEL_NAME}={names.APP_NAME}"
PODS: Final = f"{OURS},{names.LABEL_COMPONENT}=trainer"
STATUS: Final = f"{OURS},{names.LABEL_COMPONENT}=status"
STOP_SLACK_SECONDS: Final = 30.0  # beyond the grace period


class ClusterTarget:
    """All jobs of one cluster. Implements ``kitctl.targets.Target``."""

    poll_seconds = 2.0

    def __init__(self, api: Api, place: Place, tell: Callable[[str], None]) -> None:
        self.api = api
        self.namespace = place.namespace
        self._place = place
        self._tell = tell

    def submit(self, submission: Submission) -> None:
        """Create the job suspended, attach its children, release it."""
        submitting.submit(self.api, submission, self._user(), self._tell)

    def examine(self, submission: Submission) -> Iterator[Finding]:
        """Whether this cluster could run it."""
        return checks.examine(self.api, submission)

    def preview(self, submission: Submission) -> list[Change]:
        """What submitting would change."""
        return submitting.preview(self.api, submission, self._tell)

    def jobs(self, namespace: str | None) -> list[JobFacts]:
        """All jobs, the oldest first: a request for each kind, one for pods, one for reports."""
        found = [job for kind in submitting.KINDS for job in self._jobs(kind, namespace)]
        pods = _by_job(self.api.select("Pod", namespace, labelSelector=PODS)) if found else {}
        reports = _by_job(self.api.select("ConfigMap", namespace, labelSelector=STATUS)) if found else {}
        told = [
            facts.job_facts(
                job,
                pods.get(_key(job), ()),
                facts.report(next(iter(reports.get(_key(job), ())), None)),
                target=self._place.name,
                now=time.time(),
            )
            for job in found
        ]
        return sorted(told, key=lambda job: job.created)

    def job(self, namespace: str, name: str) -> JobFacts:
        """One job, in three requests: its report's owner tells its kind. Where pods are missing, one more tells why."""
        status = self.api.find("ConfigMap", namespace, names.status_name(name))
        job = self._find(namespace, name, *facts.owners(status))
        pods = self._pods(namespace, name)
        events = () if len(pods) >= facts.wanted(job) or facts.suspended(job) else self._warnings(job)
        report = facts.report(status)
        return facts.job_facts(job, pods, report, target=self._place.name, now=time.time(), events=events)

    def lines(self, namespace: str, name: str) -> list[Iterator[Line]]:
        """What the pods have logged that are still there, and of the others what their agents kept on the claim."""
        return reading.lines(self.api, self._source(namespace, name))

    def follow(self, namespace: str, name: str) -> Iterator[list[Line]]:
        """What is logged, from before the first pod exists until the job has ended, or is suspended."""
        return reading.follow(self.api, self._source(namespace, name))

    def scale(self, namespace: str, name: str, nodes: int) -> None:
        """Run an elastic job with ``nodes`` nodes from now on.

        Raises:
            UsageError: the job is not elastic, or not for that many.
        """
        job = self._find(namespace, name)
        low, _, high = facts.size(job).partition(":")
        check_scale(name, nodes, low=int(low), high=int(high or low))
        self._change(job, lifecycle.scale(job["kind"], nodes))

    def suspend(self, namespace: str, name: str) -> None:
        """Drain all nodes, and wait until they are: their agents take a snapshot within their grace period."""
        job = self._find(namespace, name)
        self._change(job, lifecycle.suspend(job["kind"], wanted=True))
        self._await_stop(job)

    def resume(self, namespace: str, name: str) -> None:
        """Start a suspended job again."""
        job = self._find(namespace, name)
        self._change(job, lifecycle.reopen(job["kind"]))  # whole: a cancel at the same time may not leave half of it

    def restart(self, namespace: str, name: str) -> None:
        """Suspend and resume: the controllers replace pods at once then, without their delays after failures.

        Raises:
            ConflictError: the job has succeeded or failed: its object cannot be started again.
        """
        job = self._find(namespace, name)
        end, _, _ = facts.end(job)
        if end in {"Succeeded", "Failed"}:
            fix = "submit it again with --replace --resume: it goes on from its last snapshot"
            raise ConflictError(f"{name!r} has ended ({end.lower()}); Kubernetes cannot start it again", fix=fix)
        self._patch(job, lifecycle.suspend(job["kind"], wanted=True))
        self._await_stop(job)
        self._patch(job, lifecycle.reopen(job["kind"]))

    def cancel(self, namespace: str, name: str) -> None:
        """End a job, and wait until no pod runs; everything else stays."""
        job = self._find(namespace, name)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._change(job, lifecycle.cancel(job["kind"], now))
        self._await_stop(job)

    def inject_fault(self, namespace: str, name: str, injection: FaultInjection) -> None:
        """Do a fault to one of its pods, or a rank there."""
        job = self._find(namespace, name)
        own = [pod for pod in self._pods(namespace, name) if lifecycle.belongs(pod, job)]
        striking.strike(self.api, own, injection)

    def delete(self, namespace: str, name: str, *, snapshots: bool) -> bool:
        """Delete a job with all that it owns, and its claim if ``snapshots`` is set; one not made for it stays."""
        job = self._find(namespace, name)
        self.api.delete(job)
        gone(self.api, job, facts.grace(job) + STOP_SLACK_SECONDS)
        return snapshots and claims.remove(self.api, job, self._user(), self._tell)

    def beside(self, kept: Kept, words: Sequence[str]) -> Iterator[bytes]:
        """What ``kittrain.snapshots`` prints about the claim of a job, which may be gone, in a pod beside it."""
        job = submitting.find(self.api, kept.namespace, kept.name)
        if job is None or not lifecycle.ours(job):
            job = companion.stand_in(self.api, kept)
        folder = facts.variables(job).get(names.KIT_SNAPSHOT_DIR)
        if not folder:
            raise keeps_none(kept.name)
        self._tell(f"a short-lived pod reads claim {facts.claim(job)}")
        return companion.output(self.api, job, (*names.SNAPSHOTS_COMMAND, folder, *words))

    @property
    def patience_seconds(self) -> float:
        """How long a server that does not answer is asked again."""
        return self.api.transport.patience_seconds

    @patience_seconds.setter
    def patience_seconds(self, seconds: float) -> None:
        self.api.transport.patience_seconds = seconds

    def _user(self) -> str:
        return preflight.user(self.api) or self._place.user

    def _find(self, namespace: str, name: str, *likely: str) -> Object:
        kinds = sorted(submitting.KINDS, key=lambda kind: kind not in likely)
        job = submitting.find(self.api, namespace, name, *kinds)
        if job is None or not lifecycle.ours(job):
            raise NotFound(f"no job {name!r} in namespace {namespace!r}", fix="kitctl list -A shows all jobs")
        return job

    def _jobs(self, kind: str, namespace: str | None) -> list[Object]:
        try:
            return [job | {"kind": kind} for job in self.api.select(kind, namespace, labelSelector=OURS)]
        except (Forbidden, UnsupportedError):
            if kind == "Job":
                raise
            return []  # no operator here, or no right to see its jobs

    def _source(self, namespace: str, name: str) -> Source:
        """Its logs, as they are read."""

        def over() -> bool:
            known = self.job(namespace, name)
            left = known.report is not None and not any(node.alive for node in known.nodes)
            return known.result is not None or (known.suspended and left)  # one in a queue has not begun

        def gone(pods: list[Object]) -> int:
            return lost(self._find(namespace, name), pods, self._report(namespace, name))

        kept = KeptLogs(self.api, self._find(namespace, name), self._tell)
        return Source(pods=lambda: self._pods(namespace, name), lost=gone, over=over, kept=kept.lines)

    def _report(self, namespace: str, name: str) -> Report | None:
        return facts.report(self.api.find("ConfigMap", namespace, names.status_name(name)))

    def _pods(self, namespace: str, name: str) -> list[Object]:
        return self.api.select("Pod", namespace, labelSelector=f"{PODS},{names.LABEL_INSTANCE}={name}")

    def _warnings(self, job: Object) -> Sequence[Object]:
        """What was said of a job that lacks pods; not of earlier ones of its name."""
        where = job["metadata"]
        chosen = f"type=Warning,involvedObject.uid={where['uid']}"
        with suppress(Forbidden):
            return self.api.select("Event", where["namespace"], fieldSelector=chosen)
        return ()

    def _change(self, job: Object, change: Object) -> None:
        end, _, _ = facts.end(job)
        if end:
            fix = "kitctl restart starts a cancelled job again" if end == "Cancelled" else "submit it again"
            raise ConflictError(f"{job['metadata']['name']!r} has ended already ({end.lower()})", fix=fix)
        self._patch(job, change)

    def _patch(self, job: Object, change: Object) -> None:
        self.api.patch(job, change)

    def _await_stop(self, job: Object) -> None:
        """Wait until no pod is left that runs."""
        namespace, name = _key(job)
        seconds = facts.grace(job) + STOP_SLACK_SECONDS
        deadline = time.monotonic() + seconds
        while any(map(facts.running, self._pods(namespace, name))):
            if time.monotonic() > deadline:
                fix = f"kitctl status {name} says which node does not answer"
                raise TargetError(f"{name!r} did not stop within {seconds:.0f} s", fix=fix)
            time.sleep(POLL_SECONDS)


def _by_job(things: Sequence[Object]) -> dict[tuple[str, str], list[Object]]:
    groups: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for thing in things:
        where = thing["metadata"]
        groups[where["namespace"], where["labels"].get(names.LABEL_INSTANCE, "")].append(thing)
    return groups


def _key(job: Object) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]
