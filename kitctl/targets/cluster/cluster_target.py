"""The commands of the cluster target: each is a few requests, and can be repeated after a crash between any two.

A command imports what others do not need: reading a job's state must not take longer than its requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kitctl.base import documents, names
from kitctl.base.errors import ConflictError, UnsupportedError
from kitctl.kinds import of_object
from kitctl.targets import Change, Session, SnapshotStore, Submission
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.kubeconfig import Context
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.queue import kueue, queues
from kitctl.targets.cluster.read import conditions, events, finding, job_facts, last_lines, own_objects
from kitctl.targets.cluster.read.reports import history_tail, report
from kitctl.targets.conflicts import (
    check_copies,
    check_scale,
    check_volumes,
    scale_notes,
    snapshots_disabled,
    snapshots_on_nodes,
)
from kitjob import variables
from kitjob.report import Report

if TYPE_CHECKING:
    from kitctl.state.checks import Finding
    from kitctl.state.facts import JobFacts
    from kitctl.state.faults import FaultInjection
    from kitctl.state.history import JobHistory
    from kitctl.state.logs import Line
    from kitctl.state.record import TargetRecords
    from kitctl.state.running_job import RankPlace
    from kitctl.state.stacks import NodeStacks
    from kitctl.state.usage import NodeUsage
    from kitctl.targets.cluster.read.pod_logs import Source

OUTPUTS_FIX: Final = "--outputs DIR has the folder DIR of it on the claim, one for all nodes"
STATUS: Final = f"{finding.OURS},{names.LABEL_COMPONENT}=status"


class ClusterTarget:
    """All jobs of one cluster. Implements ``kitctl.targets.Target``."""

    runs_here = False
    poll_seconds = 2.0

    def __init__(self, api: Api, context: Context, warn: Callable[[str], None]) -> None:
        self.api = api
        self.namespace = context.namespace
        self._context = context
        self._warn = warn

    def submit(self, submission: Submission) -> None:
        """Create the job suspended, create its children, release it."""
        from kitctl.targets.cluster.submit import submitting

        job = submitting.submit(self.api, submission, self._user(), self._warn)
        if submission.spec.outputs:
            what = f"{submission.spec.outputs} is one folder for all nodes and stays: {job_facts.outputs(job)}"
            self._warn(f"outputs: {what}")
        elif where := job_facts.outputs(job):
            self._warn(f"outputs of its nodes: {where}; {OUTPUTS_FIX}")
        elif submission.sources.files:
            self._warn(f"outputs of its nodes: what ranks write by relative path is gone with its pod; {OUTPUTS_FIX}")

    def run_checks(self, submission: Submission) -> Iterator[Finding]:
        """Check whether this cluster could run it."""
        from kitctl.targets.cluster.checks import cluster_checks

        return cluster_checks.check_cluster(self.api, submission)

    def preview(self, submission: Submission, *, refuse: bool = False) -> list[Change]:
        """What submitting would change; with ``refuse`` after the checks of a submission, which have warned of all."""
        from kitctl.targets.cluster.submit import submitting

        if refuse:
            submitting.check(self.api, submission, self._user(), self._warn)
        return submitting.preview(self.api, submission, (lambda _: None) if refuse else self._warn)

    def send_code(self, submission: Submission) -> dict[str, Any]:
        """Send its folder, without a job."""
        from kitctl.targets.cluster.submit import code_sending

        return code_sending.publish(self.api, submission, self._warn)

    def jobs(self, namespace: str | None) -> list[JobFacts]:
        """All jobs, the oldest first: a request for each kind, one for pods, one for reports."""
        found = finding.jobs(self.api, namespace)
        if namespace and not found and not finding.has_namespace(self.api, namespace):
            self._warn(f"there is no namespace {namespace!r}: kubectl get namespaces lists them")
        pods = job_facts.group_by_job(self.api.select("Pod", namespace, labelSelector=finding.PODS)) if found else {}
        statuses = (
            job_facts.group_by_job(self.api.select("ConfigMap", namespace, labelSelector=STATUS)) if found else {}
        )
        queued = any(map(kueue.queue_of, found))
        workloads = queues.all_workloads(self.api, namespace) if queued else []
        found_facts = [
            job_facts.from_objects(
                job,
                pods.get(_key(job), ()),
                next(iter(statuses.get(_key(job), ())), None),
                target=self._context.name,
                now=time.time(),
                queue=kueue.facts(job, kueue.workload_of(job, workloads)),
            )
            for job in found
        ]
        return sorted(found_facts, key=lambda job: job.created)

    def job(self, namespace: str, name: str) -> JobFacts:
        """One job, in three requests: its report's owner shows its kind.

        If pods are missing, or do not start, more for events; a few for the logs of pods that ended without a word or
        have not joined.
        """
        status = self.api.find("ConfigMap", namespace, names.status_name(name))
        job = self._find(namespace, name, *job_facts.owner_keys(status))
        pods = finding.pods(self.api, job)
        kind = of_object(job)
        complete = kind.suspended(job) or len(pods) >= kind.desired_nodes(job)
        warnings = () if complete else events.warning_events(self.api, job)
        now = time.time()
        stuck = {
            **events.stuck_pods(self.api, pods),
            **last_lines.of_silent_pods(self.api, pods),
            **last_lines.of_restarted_agents(self.api, pods, status, now),
        }
        known = job_facts.from_objects(
            job,
            pods,
            status,
            target=self._context.name,
            now=now,
            events=warnings,
            stuck={**stuck, **own_objects.missing(self.api, job, status, stuck)},
            queue=queues.facts(self.api, job),
        )
        if not (complete or pods or known.note) and (made := finding.made_of(self.api, job)):
            return replace(known, note=conditions.untouched(made, pods, now))
        return known

    def lines(self, namespace: str, name: str) -> list[Iterator[Line]]:
        """The logs of the existing pods, and for deleted ones the copies on the claim."""
        from kitctl.targets.cluster.read import pod_logs

        return pod_logs.lines(self.api, self._source(namespace, name))

    def follow(self, namespace: str, name: str) -> Iterator[list[Line]]:
        """All lines as they arrive, from before the first pod exists until the job has ended or is suspended."""
        from kitctl.targets.cluster.read import pod_logs

        return pod_logs.follow(self.api, self._source(namespace, name))

    def scale(self, namespace: str, name: str, nodes: int) -> None:
        """Set the number of nodes of an elastic job.

        Raises:
            UsageError: the job is not elastic, or not for that many.
            UnsupportedError: its kind has no such change.
        """
        from kitctl.targets.cluster.queue import run_control

        job = self._find(namespace, name)
        kind = of_object(job)
        low, _, high = kind.nodes(job).partition(":")
        check_scale(name, nodes, low=int(low), high=int(high or low))
        run_control.check_open(job)
        if kind.fixed_size:
            fix = "submit it with --replace --resume and other --nodes: it continues from its last snapshot"
            raise UnsupportedError(f"{name!r} is a {kind.resource}: {kind.fixed_size}", fix=fix)
        settings = documents.read_settings(job_facts.plain_environment(job))
        check_copies(name, settings, nodes=nodes, now=kind.desired_nodes(job) - settings.spares)
        run_control.scale(self.api, job, settings.started(nodes))
        for note in scale_notes(name, settings):
            self._warn(note)
        if job["metadata"].get("labels", {}).get(names.LABEL_MANAGED_BY) == names.HELM:
            self._warn(
                f"{name!r} is of a Helm release, which knows nothing of this: its next upgrade sets the number of "
                f"nodes to its value scale; give it --set scale={nodes}"
            )

    def suspend(self, namespace: str, name: str) -> None:
        """Drain all nodes, and wait for it: their agents take a snapshot within the grace period.

        Raises:
            ConflictError: its snapshots are on volumes that would be deleted.
        """
        from kitctl.targets.cluster.queue import run_control

        job = self._find(namespace, name)
        run_control.check_open(job)
        self._check_volumes(job, name, "suspend")
        run_control.stop(self.api, job)
        run_control.await_stop(job, partial(finding.pods, self.api, job))

    def resume(self, namespace: str, name: str) -> None:
        """Start a suspended job again; one that runs gets its ConfigMap for reports again, if that was deleted."""
        from kitctl.targets.cluster.queue import run_control
        from kitctl.targets.cluster.read import lifecycle

        job = self._find(namespace, name)
        run_control.check_open(job)
        if restored := run_control.restore_status(self.api, job):
            self._warn(f"the ConfigMap {restored} was gone, and is made anew: the job's agents report to it")
            if not of_object(job).suspended(job):
                return
        run_control.start(self.api, job, lifecycle.UNCANCELLED)  # both fields, in case of a concurrent cancel

    def restart(self, namespace: str, name: str) -> None:
        """Suspend and resume: controllers then replace pods at once, without their backoff after failures.

        Raises:
            ConflictError: the job has succeeded or failed, so its object cannot be started again; or its snapshots are
                on volumes that would be deleted.
        """
        from kitctl.targets.cluster.queue import run_control
        from kitctl.targets.cluster.read import lifecycle

        job = self._find(namespace, name)
        run_control.check_kept(job)
        end, _, _ = job_facts.result(job)
        if end in {"Succeeded", "Failed"}:
            fix = "submit it again with --replace --resume: it resumes from its last snapshot"
            raise ConflictError(f"{name!r} has ended ({end.lower()}); Kubernetes cannot start it again", fix=fix)
        self._check_volumes(job, name, "restart")
        run_control.stop(self.api, job)
        run_control.await_stop(job, partial(finding.pods, self.api, job))
        run_control.start(self.api, job, lifecycle.UNCANCELLED)

    def cancel(self, namespace: str, name: str) -> None:
        """Stop a job for good, and wait until no pod runs; everything else stays."""
        from kitctl.targets.cluster.queue import run_control
        from kitctl.targets.cluster.read import lifecycle

        job = self._find(namespace, name)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        run_control.check_open(job)
        run_control.stop(self.api, job, lifecycle.cancelled(now))
        run_control.await_stop(job, partial(finding.pods, self.api, job))

    def inject_fault(self, namespace: str, name: str, injection: FaultInjection) -> None:
        """Inject a fault into one of its pods, or a rank in it."""
        from kitctl.targets.cluster import pod_faults

        job = self._find(namespace, name)
        own = [pod for pod in finding.pods(self.api, job) if of_object(job).owns_pod(job, pod)]
        pod_faults.inject(self.api, own, injection)

    def stacks(self, namespace: str, name: str, nodes: frozenset[int]) -> list[NodeStacks]:
        """The stacks of the ranks of running nodes: a command in the pod of each, all at once."""
        from kitctl.targets.cluster import pod_tools

        return pod_tools.stacks(self.api, finding.pods(self.api, self._find(namespace, name)), nodes)

    def usage(self, namespace: str, name: str) -> list[NodeUsage]:
        """What the ranks of running nodes use: a command in the pod of each, all at once."""
        from kitctl.targets.cluster import pod_tools

        return pod_tools.usage(self.api, finding.pods(self.api, self._find(namespace, name)))

    def run_in_rank(self, namespace: str, name: str, place: RankPlace, command: Sequence[str], session: Session) -> int:
        """Run a command in the pod of a rank."""
        from kitctl.targets.cluster import pod_tools

        pod = pod_tools.pod_of(finding.pods(self.api, self._find(namespace, name)), place.node)
        return pod_tools.attend(self.api, pod, self._user(), place, command, session)

    def profile(self, namespace: str, name: str, place: RankPlace, steps: int, seconds: float) -> Iterator[bytes]:
        """A trace of some steps of a rank."""
        from kitctl.targets.cluster import pod_tools

        pod = pod_tools.pod_of(finding.pods(self.api, self._find(namespace, name)), place.node)
        return pod_tools.profile(self.api, pod, place, steps, seconds)

    def forward_port(
        self, namespace: str, name: str, place: RankPlace, ports: tuple[int, int], announce: Callable[[str], object]
    ) -> None:
        """Forward a port to the pod of a rank."""
        from kitctl.targets.cluster import pod_tools, port_forward

        pod = pod_tools.pod_of(finding.pods(self.api, self._find(namespace, name)), place.node)
        port_forward.serve(self.api, pod, self._user(), place, ports, announce)

    def delete(self, namespace: str, name: str, *, snapshots: bool, outputs: bool) -> bool:
        """Delete a job with all that it owns; with ``snapshots`` its claim as well, if it was made for this job.

        Raises:
            UnsupportedError: its outputs are to be deleted from a claim that stays.
        """
        from kitctl.targets.cluster.queue import run_control
        from kitctl.targets.cluster.read import lifecycle
        from kitctl.targets.cluster.read.existing import wait_deleted
        from kitctl.targets.cluster.submit import claims

        job = self._find(namespace, name)
        kept = job_facts.keeps_outputs(job)
        if outputs and kept and not snapshots:
            fix = (
                "--snapshots deletes the claim with both; to keep snapshots, remove its folder in a pod that mounts it"
            )
            raise UnsupportedError(f"its outputs are on {job_facts.outputs(job)}", fix=fix)
        if (fate := job_facts.fate_of_outputs(job)) and not (outputs or (kept and snapshots)):
            self._warn(f"{name}: {fate}")
        self.api.delete(job)
        wait_deleted(self.api, job, job_facts.grace_seconds(job) + run_control.STOP_SLACK_SECONDS)
        if remains := lifecycle.remains(job):
            self._warn(f"{name} {remains}")
        return snapshots and claims.remove(self.api, job, self._user(), self._warn)

    def delete_left(self, namespace: str, name: str) -> bool:
        """Delete the claim that was made for a deleted job of that name.

        Raises:
            ConflictError: another user created it, it was not made by ``kitctl submit``, or another job uses it.
        """
        from kitctl.targets.cluster.submit import claims

        return claims.remove_left(self.api, namespace, names.snapshots_name(name), self._user())

    def history(self, namespace: str, name: str) -> JobHistory:
        """What its objects say of its past, and what agents have written: read in a running pod, else in a helper."""
        from kitctl.targets.cluster.read import events, job_history

        job = self._find(namespace, name)
        pods, starts = finding.pods(self.api, job), events.starts(self.api, namespace)
        folder = job_facts.plain_environment(job).get(variables.KIT_SNAPSHOT_DIR)
        status = self.api.find("ConfigMap", namespace, names.status_name(name))
        if folder and job_facts.snapshot_claim(job):
            written: Iterable[bytes] = self._history_lines(job, pods, (names.HISTORY, folder))
        else:
            written = [history_tail(status)]
        run = report(status)
        told, waits = run.run if run else "", queues.waits(self.api, job)
        return job_history.history(job, pods, b"".join(written), starts=starts, run=told, waits=waits, now=time.time())

    def _history_lines(self, job: Object, pods: list[Object], command: Sequence[str]) -> Iterator[bytes]:
        from kitctl.targets.cluster.submit import helper_pod

        own = [pod for pod in pods if of_object(job).owns_pod(job, pod) and job_facts.is_running(pod)]
        if own:
            where = own[0]["metadata"]
            inside = [*job_facts.python(own[0]), *command]
            return self.api.execute(
                where["namespace"], where["name"], inside, container=job_facts.container_name(own[0])
            )
        self._warn(f"a helper pod reads claim {job_facts.snapshot_claim(job)}")
        return helper_pod.command_output(self.api, job, command)

    def records(self, namespace: str, name: str) -> TargetRecords:
        """What the API server has of it: its object, pods, events and report, in four requests or a few more."""
        from kitctl.targets.cluster import job_records

        return job_records.of_job(self.api, self._find(namespace, name), self._context.name)

    def run_snapshot_tool(self, store: SnapshotStore, args: Sequence[str]) -> Iterator[bytes]:
        """The output of ``kittrain.rank.snapshots`` in a helper pod with the claim of a job, which may be deleted."""
        from kitctl.targets.cluster.submit import helper_pod

        job, trainer = finding.lookup(self.api, store.namespace, store.name), None
        if job is None or not of_object(job).runs_kit(job):
            job, trainer = helper_pod.synthetic_job(self.api, store)
        folder = job_facts.plain_environment(job).get(variables.KIT_SNAPSHOT_DIR)
        if not folder:
            raise snapshots_disabled(store.name)
        if not job_facts.snapshot_claim(job):
            mirror = documents.read_settings(job_facts.plain_environment(job)).snapshots.mirror
            raise snapshots_on_nodes(store.name, mirror)
        self._warn(f"a helper pod reads claim {job_facts.snapshot_claim(job)}")
        return helper_pod.command_output(self.api, job, (*names.SNAPSHOTS, folder, *args), trainer)

    @property
    def retry_seconds(self) -> float:
        """How long requests are retried while the server does not answer."""
        return self.api.transport.retry_seconds

    @retry_seconds.setter
    def retry_seconds(self, seconds: float) -> None:
        self.api.transport.retry_seconds = seconds

    def _check_volumes(self, job: Object, name: str, verb: str) -> None:
        settings = documents.read_settings(job_facts.plain_environment(job))
        runs = not of_object(job).suspended(job)
        check_volumes(name, settings, verb, self._report(job["metadata"]["namespace"], name) if runs else None)

    def _user(self) -> str:
        from kitctl.targets.cluster.submit import preflight

        return preflight.user(self.api) or self._context.user

    def _find(self, namespace: str, name: str, *likely: str) -> Object:
        return finding.find(self.api, namespace, name, *likely)

    def _source(self, namespace: str, name: str) -> Source:
        """Where its lines come from."""
        from kitctl.targets.cluster.log_copies import LogCopies
        from kitctl.targets.cluster.read.agent_runs import count_missing
        from kitctl.targets.cluster.read.pod_logs import Source

        found = self._find(namespace, name)

        def ended() -> bool:
            job = self.job(namespace, name)
            drained = job.report is not None and not any(node.alive for node in job.nodes)
            return job.result is not None or (job.suspended and drained)  # a queued job has not started

        def missing(pods: list[Object]) -> int:
            return count_missing(self._find(namespace, name), pods, self._report(namespace, name))

        copies = LogCopies(self.api, found, self._warn)
        return Source(pods=lambda: finding.pods(self.api, found), missing=missing, ended=ended, copies=copies.lines)

    def _report(self, namespace: str, name: str) -> Report | None:
        return report(self.api.find("ConfigMap", namespace, names.status_name(name)))


def _key(job: Object) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]
