"""The verbs of the cluster target: each is a few requests, and can be run again after a crash between any two."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from kitctl import names
from kitctl.errors import ConflictError, Forbidden, NotFound, TargetError, UnsupportedError, UsageError
from kitctl.logs import Line
from kitctl.state import JobFacts
from kitctl.targets import Change, Submission
from kitctl.targets.cluster import facts, lifecycle, reading, submitting
from kitctl.targets.cluster.access import Place
from kitctl.targets.cluster.api import Api, Object

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
        self._place = place.name
        self._tell = tell

    def submit(self, submission: Submission) -> JobFacts:
        """Create the job suspended, attach its children, release it."""
        return self._facts(submitting.submit(self.api, submission, self._tell))

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
                target=self._place,
                now=time.time(),
            )
            for job in found
        ]
        return sorted(told, key=lambda job: job.created)

    def job(self, namespace: str, name: str) -> JobFacts:
        """One job, in three requests; where pods are missing, two more tell why."""
        return self._facts(self._find(namespace, name))

    def lines(self, namespace: str, name: str) -> list[Iterator[Line]]:
        """What the pods that are still there have logged; where none is, what their agents kept on the claim."""
        job = self._find(namespace, name)
        pods = [pod for pod in self._pods(namespace, name) if facts.has_logs(pod)]
        if pods:
            return [reading.pod_lines(self.api, pod) for pod in pods]
        folder = facts.environment(job).get(names.KIT_LOG_DIR)
        if not folder or not self._begun(job):
            return []
        self._tell(f"its pods are gone: a short-lived one reads their logs from {facts.snapshots(job)}")
        return [reading.kept_lines(self.api, job, folder)]

    def follow(self, namespace: str, name: str) -> Iterator[list[Line]]:
        """What is logged, from before the first pod exists until the job has ended, or is suspended."""

        def over() -> bool:
            known = self.job(namespace, name)
            return known.end is not None or (known.suspended and not any(place.alive for place in known.places))

        self._find(namespace, name)
        return reading.follow(self.api, lambda: self._pods(namespace, name), over)

    def scale(self, namespace: str, name: str, nodes: int) -> JobFacts:
        """Run an elastic job with ``nodes`` nodes from now on.

        Raises:
            UsageError: the job is not elastic, or not for that many.
        """
        job = self._find(namespace, name)
        size = facts.size(job)
        low, _, high = size.partition(":")
        if not int(low) <= nodes <= int(high or low):
            many = f"{low} to {high} nodes" if high else f"exactly {low} nodes"
            fix = "choose a number in that range, or submit it anew with --nodes MIN:MAX"
            raise UsageError(f"nodes: {nodes}, but {name!r} was submitted for {many}", fix=fix)
        return self._change(job, lifecycle.scale(job["kind"], nodes))

    def suspend(self, namespace: str, name: str) -> JobFacts:
        """Drain all nodes, and wait until they are: their agents take a snapshot within their grace period."""
        job = self._find(namespace, name)
        self._change(job, lifecycle.suspend(job["kind"], wanted=True))
        return self._stopped(job)

    def resume(self, namespace: str, name: str) -> JobFacts:
        """Start a suspended job again."""
        job = self._find(namespace, name)
        return self._change(job, lifecycle.suspend(job["kind"], wanted=False))

    def restart(self, namespace: str, name: str) -> JobFacts:
        """Suspend and resume: the controllers replace pods at once then, without their delays after failures.

        Raises:
            ConflictError: the job has succeeded or failed: its object cannot be started again.
        """
        job = self._find(namespace, name)
        end = self._facts(job).end
        if end in {"Succeeded", "Failed"}:
            fix = "submit it again with --replace --resume: it goes on from its last snapshot"
            raise ConflictError(f"{name!r} has ended ({end.lower()}); Kubernetes cannot start it again", fix=fix)
        self._patch(job, lifecycle.suspend(job["kind"], wanted=True))
        self._stopped(job)
        return self._facts(self._patch(job, lifecycle.reopen(job["kind"])))

    def cancel(self, namespace: str, name: str) -> JobFacts:
        """End a job, and wait until no pod runs; everything else stays."""
        job = self._find(namespace, name)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._change(job, lifecycle.cancel(job["kind"], now))
        return self._stopped(job)

    def delete(self, namespace: str, name: str, *, snapshots: bool) -> None:
        """Delete a job with all that it owns, wait until it is gone, and delete its claim if ``snapshots`` is set."""
        job = self._find(namespace, name)
        self.api.delete(job["kind"], namespace, name)
        submitting.gone(self.api, namespace, [(job["kind"], name)], facts.grace(job) + STOP_SLACK_SECONDS)
        claim = names.snapshots_name(name)
        if snapshots and facts.snapshots(job).endswith(f" {claim}"):
            self.api.delete("PersistentVolumeClaim", namespace, claim)

    def _find(self, namespace: str, name: str) -> Object:
        job = submitting.find(self.api, namespace, name)
        if job is None or not lifecycle.ours(job):
            raise NotFound(f"no job {name!r} in namespace {namespace!r}", fix="kitctl list -A shows all jobs")
        return job

    def _begun(self, job: Object) -> bool:
        return bool(job.get("status", {}).get("startTime")) or names.ANNOTATION_CANCELLED in lifecycle.noted(job)

    def _jobs(self, kind: str, namespace: str | None) -> list[Object]:
        try:
            return [job | {"kind": kind} for job in self.api.select(kind, namespace, labelSelector=OURS)]
        except (Forbidden, UnsupportedError):
            if kind == "Job":
                raise
            return []  # no operator here, or no right to see its jobs

    def _pods(self, namespace: str, name: str) -> list[Object]:
        return self.api.select("Pod", namespace, labelSelector=f"{PODS},{names.LABEL_INSTANCE}={name}")

    def _facts(self, job: Object) -> JobFacts:
        namespace, name = _key(job)
        pods = self._pods(namespace, name)
        report = facts.report(self.api.find("ConfigMap", namespace, names.status_name(name)))
        events = () if len(pods) >= facts.wanted(job) or facts.suspended(job) else self._warnings(namespace, name)
        return facts.job_facts(job, pods, report, target=self._place, now=time.time(), events=events)

    def _warnings(self, namespace: str, name: str) -> Sequence[Object]:
        """What was said of a job that lacks pods."""
        with suppress(Forbidden):
            return self.api.select("Event", namespace, fieldSelector=f"type=Warning,involvedObject.name={name}")
        return ()

    def _change(self, job: Object, change: Object) -> JobFacts:
        if end := self._facts(job).end:
            fix = "kitctl restart starts a cancelled job again" if end == "Cancelled" else "submit it again"
            raise ConflictError(f"{job['metadata']['name']!r} has ended already ({end.lower()})", fix=fix)
        return self._facts(self._patch(job, change))

    def _patch(self, job: Object, change: Object) -> Object:
        return self.api.patch(job["kind"], *_key(job), change) | {"kind": job["kind"]}

    def _stopped(self, job: Object) -> JobFacts:
        """Wait until no pod is left that runs."""
        where = job["metadata"]
        seconds = facts.grace(job) + STOP_SLACK_SECONDS
        deadline = time.monotonic() + seconds
        while any(
            "running" in facts.container(pod).get("state", {}) for pod in self._pods(where["namespace"], where["name"])
        ):
            if time.monotonic() > deadline:
                fix = f"kitctl status {where['name']} says which node does not answer"
                raise TargetError(f"{where['name']!r} did not stop within {seconds:.0f} s", fix=fix)
            time.sleep(submitting.POLL_SECONDS)
        return self.job(where["namespace"], where["name"])


def _by_job(things: Sequence[Object]) -> dict[tuple[str, str], list[Object]]:
    groups: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for thing in things:
        where = thing["metadata"]
        groups[where["namespace"], where["labels"].get(names.LABEL_INSTANCE, "")].append(thing)
    return groups


def _key(job: Object) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]
