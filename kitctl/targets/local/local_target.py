"""The commands of the local target: each reads or changes a job's folder, and starts its supervisor if it has none."""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from kitctl.base import names
from kitctl.base.errors import ConflictError, TargetError, UnsupportedError
from kitctl.code.workdir.summary import sent
from kitctl.spec.job_spec import JobSpec
from kitctl.state.checks import Finding
from kitctl.state.facts import JobFacts
from kitctl.state.faults import FaultInjection
from kitctl.state.history import JobHistory
from kitctl.state.logs import Line
from kitctl.state.running_job import RankPlace
from kitctl.state.stacks import NodeStacks
from kitctl.state.usage import NodeUsage
from kitctl.targets import Session, SnapshotStore, Submission, plain_scripts
from kitctl.targets.conflicts import (
    already_exists,
    check_copies,
    check_scale,
    check_volumes,
    no_job,
    no_snapshots,
    scale_notes,
    snapshots_disabled,
    snapshots_were_in_memory,
)
from kitctl.targets.local import (
    code_store,
    disk,
    folder_facts,
    interpreter,
    launch,
    local_checks,
    memory_folders,
    node_folders,
    node_logs,
    node_session,
    node_tools,
    process_faults,
    recording,
    snapshot_tool,
    supervisor,
    supervisor_log,
)
from kitctl.targets.local import outputs as job_outputs
from kitctl.targets.local.folder import JobFolder, create, state_home
from kitctl.targets.local.locks import acquire_lock
from kitctl.targets.local.records import Desired
from kitctl.targets.local.removal import remove, require_own

if TYPE_CHECKING:
    from kitctl.state.record import TargetRecords

STOP_SLACK_SECONDS = 15.0  # beyond the grace period: until SIGKILL was sent and noticed


class LocalTarget:
    """All jobs of one state folder. Implements ``kitctl.targets.Target``."""

    namespace = "default"
    runs_here = True
    poll_seconds = 0.5
    retry_seconds = 0.0  # a folder needs no retries

    def __init__(self, state: Path, warn: Callable[[str], None] = lambda _: None) -> None:
        self.state = state
        self._warn = warn

    @classmethod
    def of_user(cls, warn: Callable[[str], None] = lambda _: None) -> LocalTarget:
        """The current user's target; ``warn`` prints a line for them."""
        return cls(state_home(), warn)

    def submit(self, submission: Submission) -> None:
        """Create the job's folder and start its supervisor.

        Raises:
            ConflictError: a job of that name exists.
            UsageError: this machine cannot run it.
        """
        spec = submission.spec
        local_checks.require_runnable(submission)
        if submission.checks:
            remarks = (*plain_scripts.check(submission), *local_checks.require_mirror(submission, self.state))
            for remark in remarks:
                self._warn(f"warning: {remark}")
        if submission.replace and (self._path(spec.namespace, spec.name) / "job.json").is_file():
            self.delete(spec.namespace, spec.name, snapshots=False, outputs=False)
        path, sources = self._path(spec.namespace, spec.name), submission.sources
        job = recording.new_job(submission, path, self.state)
        try:
            folder = create(
                path, job, Desired(nodes=spec.all_nodes), partial(code_store.add, sources.folders, state=self.state)
            )
        except FileExistsError as error:
            phase = self.job(spec.namespace, spec.name).result or "Running"
            raise already_exists(spec.name, phase) from error
        for one in sources.folders:
            self._warn(sent(one, str(folder.code_store)))
        if where := job_outputs.place(folder, self.state):
            self._warn(_outputs(spec, where))
        supervisor.spawn(folder)

    def run_checks(self, submission: Submission) -> Iterator[Finding]:
        """Check whether this machine could run it."""
        return local_checks.check_machine(submission, self.state)

    def preview(self, submission: Submission, *, refuse: bool = False) -> NoReturn:  # noqa: ARG002 - the protocol's
        """Not supported: there are no manifests to compare.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("local jobs have no manifests to compare", fix="use --target cluster")

    def send_code(self, submission: Submission) -> NoReturn:  # noqa: ARG002 - the protocol's
        """Not supported: a chart runs on a cluster.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("a folder is sent to a cluster, for the chart", fix="use --target cluster")

    def jobs(self, namespace: str | None) -> list[JobFacts]:
        """All jobs, the oldest first; warns of those that cannot be read. Starts the supervisors that they need."""
        found = []
        for path in (self.state / "jobs").glob(f"{namespace or '*'}/[!.]*/job.json"):
            try:
                found.append(self._facts(JobFolder(path.parent)))
            except TargetError as error:
                self._warn(f"warning: {error.message}; {error.fix}")
        return sorted(found, key=lambda job: job.created)

    def _names(self, namespace: str) -> list[str]:
        return [job.name for job in self.jobs(namespace)]

    def job(self, namespace: str, name: str) -> JobFacts:
        """One job; starts a supervisor if the job needs one."""
        return self._facts(self._open(namespace, name))

    def lines(self, namespace: str, name: str) -> list[Iterator[Line]]:
        """What was logged so far: one stream per node."""
        folder = self._open(namespace, name)
        self._supervise(folder)
        return [node_logs.node_lines(node) for node in folder.nodes()]

    def follow(self, namespace: str, name: str) -> Iterator[list[Line]]:
        """All lines as they arrive, until the job ends or is suspended."""
        folder = self._open(namespace, name)
        self._supervise(folder)
        return node_logs.follow(folder)

    def scale(self, namespace: str, name: str, nodes: int) -> None:
        """Set the number of nodes of an elastic job.

        Raises:
            UsageError: the job is not elastic, or not for that many.
        """
        spec = self._open(namespace, name).job.spec
        check_scale(name, nodes, low=spec.min_nodes, high=spec.max_nodes)
        check_copies(name, spec, nodes=nodes, now=self._open(namespace, name).desired.nodes - spec.spares)
        started = spec.started(nodes)
        self._change(namespace, name, lambda desired: msgspec.structs.replace(desired, nodes=started))
        for note in scale_notes(name, spec):
            self._warn(note)

    def suspend(self, namespace: str, name: str) -> None:
        """Drain all nodes, and wait for it.

        Raises:
            ConflictError: what is in their memory would be lost.
        """
        self._check_memory(namespace, name, "suspend")
        self._change(namespace, name, lambda desired: msgspec.structs.replace(desired, suspended=True))
        self._await_stop(namespace, name)

    def resume(self, namespace: str, name: str) -> None:
        """Start a suspended job again."""
        self._change(namespace, name, lambda desired: msgspec.structs.replace(desired, suspended=False))

    def restart(self, namespace: str, name: str) -> None:
        """Start all nodes again.

        Raises:
            ConflictError: the job has succeeded; or what is in its nodes' memory would be lost.
        """
        folder = self._open(namespace, name)
        result = folder.result
        if result and result.phase == "Succeeded":
            fix = f"submit it again; with --resume it resumes from the snapshots of {name!r}"
            raise ConflictError(f"{name!r} has succeeded", fix=fix)
        if not result:
            self._check_memory(namespace, name, "restart")
        desired = folder.desired
        folder.write(Desired(nodes=desired.nodes, restarts=desired.restarts + 1))
        if result:
            with acquire_lock(folder.lock):  # the supervisor that wrote it is about to exit
                folder.clear_result()
        self._supervise(folder)

    def _check_memory(self, namespace: str, name: str, verb: str) -> None:
        folder = self._open(namespace, name)
        if folder.job.spec.snapshots.in_memory and not folder.desired.suspended:
            check_volumes(name, folder.job.spec, verb, folder.report)

    def cancel(self, namespace: str, name: str) -> None:
        """Stop a job for good, and wait until it has ended."""
        self._change(namespace, name, lambda desired: msgspec.structs.replace(desired, cancelled=True))
        self._await_stop(namespace, name)

    def inject_fault(self, namespace: str, name: str, injection: FaultInjection) -> None:
        """Inject a fault into one of its nodes, or a rank of it."""
        process_faults.inject(self._open(namespace, name), injection)

    def stacks(self, namespace: str, name: str, nodes: frozenset[int]) -> list[NodeStacks]:
        """The stacks of the ranks of running nodes."""
        return node_tools.stacks(self._open(namespace, name), nodes)

    def usage(self, namespace: str, name: str) -> list[NodeUsage]:
        """What the ranks of running nodes use."""
        return node_tools.usage(self._open(namespace, name))

    def run_in_rank(self, namespace: str, name: str, place: RankPlace, command: Sequence[str], session: Session) -> int:
        """Run a command where a rank is, as this user."""
        return node_session.run(self._open(namespace, name), self.state, place, command, session)

    def profile(self, namespace: str, name: str, place: RankPlace, steps: int, seconds: float) -> Iterator[bytes]:
        """A trace of some steps of a rank."""
        return node_tools.profile(self._open(namespace, name), place, steps, seconds)

    def forward_port(
        self, namespace: str, name: str, place: RankPlace, ports: tuple[int, int], announce: Callable[[str], object]
    ) -> None:
        """Say that nothing need be forwarded: a local rank's ports are this machine's."""
        node_tools.agent(self._open(namespace, name), place.node)
        announce(
            f"nothing to forward: rank {place.rank} runs on this machine, its port is {launch.LOOPBACK}:{ports[1]}"
        )

    def delete(self, namespace: str, name: str, *, snapshots: bool, outputs: bool) -> bool:
        """Stop a job and remove its folder; what its ranks wrote is moved out of it, unless ``outputs`` is set.

        Raises:
            ConflictError: its snapshots are to be deleted, and are outside the state folder.
            TargetError: its outputs can be neither moved nor removed; the job stays.
        """
        folder = self._open(namespace, name)
        stored = launch.snapshot_dir(folder.job.spec, self.state) if snapshots else None
        if stored:
            require_own(stored, self.state)
        if not folder.result:
            self.cancel(namespace, name)
        self._settle_outputs(folder, delete=outputs, stored=stored)
        if stored:
            memory_folders.remove_all(stored)  # its supervisor may have yet to do so, and would no longer find them
            remove(stored)
        trash = folder.path.with_name(f".gone-{uuid.uuid4().hex}")
        folder.path.rename(trash)  # atomic: no command sees a partially deleted job
        shutil.rmtree(trash, ignore_errors=True)
        code_store.remove_unused(self.state)
        return snapshots

    def delete_left(self, namespace: str, name: str) -> bool:
        """Remove the folder of snapshots that a deleted job has left.

        Raises:
            ConflictError: it is a link, or its path leads out of the state folder.
        """
        stored = launch.stored_dir(self.state, namespace, name, "")
        if not stored.is_dir():
            return False
        require_own(stored, self.state)
        memory_folders.remove_all(stored)
        remove(stored)
        return True

    def history(self, namespace: str, name: str) -> JobHistory:
        """What the job's folder and the folder of its snapshots say of its past."""
        folder = self._open(namespace, name)
        job = folder.job
        shared = job.spec.snapshots.storage == "claim"  # else no node could read what another has written
        near = (launch.snapshot_dir(job.spec, self.state) if shared else None) or folder.path
        command = interpreter.command(job.python, [names.HISTORY, str(near)])
        lines = b"".join(snapshot_tool.output(command, job.library))
        return folder_facts.history(folder, self._facts(folder), lines, now=time.time())

    def records(self, namespace: str, name: str) -> TargetRecords:
        """What the job's folder has: its JSON files, and the end of its supervisor's log."""
        from kitctl.targets.local import job_records  # noqa: PLC0415 - for two commands alone

        return job_records.of_folder(self._open(namespace, name))

    def run_snapshot_tool(self, store: SnapshotStore, args: Sequence[str]) -> Iterator[bytes]:
        """The output of ``kittrain.rank.snapshots`` for a folder of snapshots, whose job may be deleted."""
        folder = self._path(store.namespace, store.name)
        job = JobFolder(folder).job if (folder / "job.json").is_file() else None
        if job and not job.spec.snapshots.enabled:
            raise snapshots_disabled(store.name)
        claim = job.spec.snapshots.claim if job else store.claim
        snapshots = launch.stored_dir(self.state, store.namespace, store.name, claim)
        if not (job or snapshots.is_dir()):
            fix = f"see {self.state} for the snapshots of earlier jobs"
            raise no_snapshots(store.name, "on this machine", fix, lambda: self._names(store.namespace))
        python, library = (job.python, job.library) if job else (sys.executable, "")
        if job and job.spec.snapshots.in_memory and not node_folders.are_there(snapshots):
            raise snapshots_were_in_memory(store.name, job.spec.snapshots.mirror)
        if node_folders.are_there(snapshots):
            return _of_nodes(store.name, snapshots, args, partial(snapshot_tool.run, python, library))
        return snapshot_tool.run(python, library, snapshots, args)

    def _path(self, namespace: str, name: str) -> Path:
        return self.state / "jobs" / namespace / name

    def _open(self, namespace: str, name: str) -> JobFolder:
        path = self._path(namespace, name)
        if not (path / "job.json").is_file():
            where = f"in namespace {namespace!r} on this machine"
            raise no_job(name, where, lambda: self._names(namespace))
        return JobFolder(path)

    def _settle_outputs(self, folder: JobFolder, *, delete: bool, stored: Path | None) -> None:
        """Delete or keep outputs; those among ``stored`` snapshots, which are deleted next, are not said to stay."""
        if delete:
            job_outputs.remove_kept(folder, self.state)
            return
        for kept in job_outputs.keep(folder, self.state):
            if not (stored and kept.folder.is_relative_to(stored)):
                self._warn(f"{folder.path.name}: {kept}")

    def _facts(self, folder: JobFolder) -> JobFacts:
        self._supervise(folder)
        return folder_facts.from_folder(folder, self.state)

    def _supervise(self, folder: JobFolder) -> None:
        """Start a supervisor if the job needs one and has none; says so if the one before was killed."""
        idle = folder.desired.suspended and not any(node.alive() for node in folder.nodes())
        if folder.result or idle or folder.supervised():
            return
        last = supervisor_log.interrupted(folder.supervisor_lines)
        supervisor.spawn(folder)
        if last:
            name = folder.path.name
            self._warn(
                f"warning: {name}: its supervisor was killed, and lost nodes were not replaced; started another one "
                f"(last line of {folder.supervisor_log}: {last})"
            )

    def _change(self, namespace: str, name: str, change: Callable[[Desired], Desired]) -> None:
        folder = self._open(namespace, name)
        if result := folder.result:
            raise ConflictError(
                f"{name!r} has already ended ({result.phase.lower()})", fix="kitctl restart starts a failed job again"
            )
        folder.write(change(folder.desired))
        self._supervise(folder)

    def _await_stop(self, namespace: str, name: str) -> None:
        """Wait until no node runs and, if the job is to end, until its result is recorded, where that can be."""
        folder = self._open(namespace, name)
        deadline = time.monotonic() + folder.job.spec.grace_seconds + STOP_SLACK_SECONDS

        def is_over() -> bool:
            return bool(folder.result or folder.desired.suspended or disk.trouble(self.state))

        while any(node.alive() for node in folder.nodes()) or not is_over():
            if time.monotonic() > deadline:
                raise TargetError(f"{name!r} did not stop", fix=f"see {folder.supervisor_log}")
            self._supervise(folder)
            time.sleep(supervisor.POLL_SECONDS)


def _of_nodes(
    name: str, folder: Path, args: Sequence[str], run: Callable[[Path, Sequence[str]], Iterator[bytes]]
) -> Iterator[bytes]:
    """A tool's output for the folders of all nodes, which it only reads."""
    if args[0] == "prune":
        raise UnsupportedError(f"each node of {name!r} prunes its own snapshots", fix="set snapshots.keep")
    with node_folders.as_one(folder) as merged:
        yield from run(merged, args)


def _outputs(spec: JobSpec, where: str) -> str:
    """Where a job's outputs are, and who sees them."""
    if spec.outputs:
        return f"outputs: {spec.outputs} is one folder for all nodes, {where}"
    own = (
        "each node sees only its own: what rank 0 saves is not there for others, unless --outputs DIR names its folder"
    )
    return f"outputs of its nodes: {where}" + (f"; {own}" if spec.max_nodes > 1 else "")
