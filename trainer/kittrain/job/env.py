"""The environment of a node and of a rank as typed objects: read once, checked once, never looked up again.

What follows from the job is in its document (``kitjob.document``); here is what only this node or this rank knows. A
variable of a setting's own wins over the document: ``KIT_SNAPSHOTS_KEEP=5`` over ``snapshots.keep``. Images use that,
and runs without kitctl. Standard library only: this is the first thing that runs in the container, before torch is
imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from kitjob import document, older, timeline, typed, variables
from kitjob.decoders import MalformedError
from kitjob.document import DocumentError
from kitjob.durations import seconds
from kitjob.fields import Size
from kitjob.job_keys import JobKeys
from kitjob.record import Record, camel, hints, is_record, sent_fields
from kitjob.run import RunFacts
from kittrain.job.variables import EnvError, number_of, pairs_of

Backend = Literal["auto", "nccl", "gloo"]
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a file system in main memory, in every container
WORKER_DRAINED: Final = 75  # a rank that took its snapshot and wants to be started again; EX_TEMPFAIL
DEVICES: Final = Path("/dev")
PER_GPU: Final = frozenset({"auto", "gpu"})  # values of PET_NPROC_PER_NODE: a rank for each GPU
NO_RUN: Final = RunFacts()
KNOWN: Final = variables.OURS - {variables.KIT_RESTART_IN_PLACE}  # that are no settings
FLAGS: Final = {"0": False, "1": True}
ALONE: Final = JobKeys(name="local", namespace="default")  # without a document


@dataclass(frozen=True, kw_only=True)
class JobEnv:
    """What agents and ranks are told about their job; defaults are those of a run without a document."""

    job: JobKeys = ALONE
    run: RunFacts = NO_RUN
    run_id: str = "local"
    node_index: int = 0
    snapshot_dir: Path | None = None  # None: no snapshots
    backend: Backend = "auto"  # the job's; if it sets none, the image's
    grace_seconds: int | None = None  # from SIGTERM to SIGKILL; None: unknown

    @property
    def shared_dir(self) -> Path | None:
        """The folder of snapshots, if all nodes share it."""
        return self.snapshot_dir if self.job.snapshots.storage == "claim" else None

    @property
    def writes_model(self) -> bool:
        """Whether the end of training writes the model's file; not to memory, which is gone then: the mirror has it."""
        snapshots = self.job.snapshots
        return snapshots.model_file and self.snapshot_dir is not None and snapshots.storage != "memory"

    @property
    def history_folder(self) -> Path | None:
        """Where the history of this run is: among its snapshots, else next to a report that is a file.

        It is not in a folder that only this node has: no other could read it.
        """
        scheme, _, path = self.run.report.partition(":")
        near = self.shared_dir or (Path(path).parent if scheme == "file" and path else None)
        return near / timeline.FOLDER / self.run_id if near else None


@dataclass(frozen=True, kw_only=True)
class NodeEnv(JobEnv):
    """What a node knows about the job and about itself."""

    procs_per_node: int = 1  # of this node
    rendezvous_conf: Mapping[str, str] = field(default_factory=dict)  # as PET_RDZV_CONF
    pod: str = "local-0"
    host: str = "localhost"
    local_addr: str | None = None
    warm_workers: bool = True  # set by an image: False starts each rank as a new interpreter
    memory_root: Path | None = None  # set by an image: where ranks keep copies of their state
    termination_log: Path | None = None
    packages: Path | None = None  # where the script's requirements are installed; set by the agent
    agent_runs: int = 0  # containers of this node, this one included, as far as they left log copies; set by the agent
    agent_restarts: int = 0  # in this container; set by the agent
    restart_cause: str = ""  # how the previous agent ended; set by the agent

    @property
    def hosts_rendezvous(self) -> bool:
        """Whether the others meet at this node's agent."""
        return self.node_index == 0

    @property
    def grace_period(self) -> float:
        """Seconds from SIGTERM to SIGKILL."""
        return float(seconds(self.job.policy.grace_period))


@dataclass(frozen=True, kw_only=True)
class RankEnv(JobEnv):
    """What a rank knows: the job, and torchrun's variables. Defaults are one lone process."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    memory_dir: Path | None = None  # set by the agent for its own ranks, as are the next three
    progress_file: Path | None = None
    heartbeat_file: Path | None = None
    round_pipe: Path | None = None

    @property
    def distributed(self) -> bool:
        """Whether an elastic agent started this process."""
        return "RANK" in os.environ


def node_env(environ: Mapping[str, str] = os.environ) -> NodeEnv:
    """Read a node's environment.

    Raises:
        EnvError: something is missing or is not what it should be.
    """
    index = number_of(variables.JOB_COMPLETION_INDEX, environ.get(variables.JOB_COMPLETION_INDEX) or "0")
    index = number_of(variables.KIT_NODE_INDEX, environ.get(variables.KIT_NODE_INDEX) or str(index))
    told = _job_env(environ, node_index=index, run_id=environ.get(variables.PET_RDZV_ID))
    job: JobKeys = told["job"]
    return NodeEnv(
        **told,
        procs_per_node=_own(job.ranks_by_node, index) if job.ranks_by_node else job.ranks_per_node,
        rendezvous_conf=_timeouts(job) if environ.get(variables.KIT_SPEC) else _torchrun_conf(environ),
        pod=environ.get(variables.KIT_POD) or f"local-{index}",
        host=environ.get(variables.KIT_NODE_NAME, "localhost"),
        local_addr=environ.get(variables.PET_LOCAL_ADDR) or None,
        warm_workers=_own_value(environ, variables.KIT_WARM_WORKERS, bool, default=True),
        memory_root=_memory_root(environ) if job.snapshots.memory_every_steps else None,
        termination_log=_path(environ, variables.KIT_TERMINATION_LOG),
    )


def rank_env(environ: Mapping[str, str] = os.environ) -> RankEnv:
    """Read a rank's environment; without an elastic agent it is one lone process.

    Raises:
        EnvError: something is not what it should be.
    """
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    own: dict[str, Any] = {name.lower(): number_of(name, environ[name]) for name in names if environ.get(name)}
    index = number_of(variables.KIT_NODE_INDEX, environ.get(variables.KIT_NODE_INDEX) or "0")
    # KIT_RUN_ID is our agent's; plain torchrun sets the other
    run_id = environ.get(variables.KIT_RUN_ID) or environ.get(variables.PET_RDZV_ID)
    return RankEnv(
        **_job_env(environ, node_index=index, run_id=run_id),
        **own,
        memory_dir=_path(environ, variables.KIT_MEMORY_DIR),
        progress_file=_path(environ, variables.KIT_PROGRESS_FILE),
        heartbeat_file=_path(environ, variables.KIT_HEARTBEAT_FILE),
        round_pipe=_path(environ, variables.KIT_ROUND_PIPE),
    )


def variable_of(path: Sequence[str]) -> str:
    """The variable of a setting: ``KIT_SNAPSHOTS_KEEP`` of ``snapshots.keep``."""
    return f"KIT_{'_'.join(path).upper()}"


def _job_env(environ: Mapping[str, str], *, node_index: int, run_id: str | None) -> dict[str, Any]:
    """The fields of JobEnv."""
    told = environ.get(variables.KIT_SPEC)
    try:
        settings, run = document.read(told) if told else _launcher(environ)
        own = _given(environ, JobKeys)
        job = document.build(JobKeys, _merged(settings, own), "job")
        told_run = document.build(RunFacts, _merged(run, _given(environ, RunFacts)), "run")
    except DocumentError as error:
        raise EnvError(str(error)) from error
    auto = _own_value(environ, variables.KIT_AUTO_BACKEND, Backend, default="auto")
    known = told or "gracePeriod" in own.get("policy", {})
    return {
        "job": job,
        "run": told_run,
        "run_id": run_id or "local",
        "node_index": node_index,
        "snapshot_dir": _path(environ, variables.KIT_SNAPSHOT_DIR),
        "backend": auto if job.backend == "auto" else job.backend,
        "grace_seconds": seconds(job.policy.grace_period) if known else None,
    }


def _given(environ: Mapping[str, str], kind: type[Record]) -> dict[str, Any]:
    """The settings, or parts of the run, that have a variable of their own, as they are written in a document."""
    found: dict[str, Any] = {}
    if not any(name.startswith("KIT_") and name not in KNOWN for name in environ):
        return found
    for path, hint in _settings(kind, every=kind is RunFacts):
        if text := environ.get(name := variable_of(path)):
            *sections, key = map(camel, path)
            place = found
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = _value(name, text, hint)
    return found


def _settings(kind: type[Record], path: tuple[str, ...] = (), *, every: bool) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path and the type of each text, number or flag that agents and ranks read."""
    for name, hint in hints(kind).items():
        if not every and name not in sent_fields(kind):
            continue
        section = next((one for one in typed.parts(hint) if is_record(one)), None)
        if section:
            yield from _settings(section, (*path, name), every=every)
        elif not typed.is_mapping(hint):
            yield (*path, name), hint


def _value(name: str, text: str, hint: Any) -> Any:
    """A variable's text as a value of a type: a flag, a number or the text itself."""
    failure = MalformedError()
    for candidate in (FLAGS.get(text), _whole(text), text, older.with_unit(hint, text)):
        if candidate is None:
            continue
        try:
            typed.decode(hint, candidate)
        except MalformedError as error:
            failure = error
        else:
            return candidate
    raise EnvError(f"{name}={text!r}: {failure}") from failure


def _own_value(environ: Mapping[str, str], name: str, hint: Any, *, default: Any) -> Any:
    text = environ.get(name)
    return _value(name, text, hint) if text else default


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def _memory_root(environ: Mapping[str, str]) -> Path:
    return _path(environ, variables.KIT_MEMORY_ROOT) or SHARED_MEMORY


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merged(one[key], part) for key, part in other.items() if isinstance(one.get(key), dict)}
    return {**one, **other, **both}


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _own(by_node: Sequence[int], index: int) -> int:
    """The number of ranks of a node, if nodes differ."""
    if index >= len(by_node):
        raise EnvError(f"{variables.KIT_SPEC}: procsPerNode: none for node {index}: {by_node}")
    return by_node[index]


def _timeouts(job: JobKeys) -> dict[str, str]:
    """The rendezvous' timeouts under torchrun's names."""
    join, last_call = seconds(job.rendezvous.join_timeout), seconds(job.rendezvous.last_call)
    return {"join_timeout": str(join), "last_call_timeout": str(last_call)}


def _torchrun_conf(environ: Mapping[str, str]) -> dict[str, str]:
    return pairs_of(variables.PET_RDZV_CONF, environ.get(variables.PET_RDZV_CONF, ""))


def _launcher(environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What torchrun's own variables say, as a document does."""
    host, _, port = (environ.get(variables.PET_RDZV_ENDPOINT) or "127.0.0.1:29400").rpartition(":")
    ranks = environ.get(variables.PET_NPROC_PER_NODE) or "1"
    gpus = _gpus() if ranks in PER_GPU else 0
    job = {
        **document.written(ALONE),
        "nodes": _own_value(environ, variables.PET_NNODES, Size, default=1),
        "gpusPerNode": gpus,
        "procsPerNode": "auto" if ranks in PER_GPU else number_of(variables.PET_NPROC_PER_NODE, ranks),
        "policy": {"maxRestarts": number_of(variables.PET_MAX_RESTARTS, environ.get(variables.PET_MAX_RESTARTS, "3"))},
    }
    return job, {"rendezvousHost": host, "rendezvousPort": number_of(variables.PET_RDZV_ENDPOINT, port)}


def _gpus() -> int:
    """The number of GPUs in this container, for a launcher's ``auto``."""
    return sum(path.name[len("nvidia") :].isdecimal() for path in DEVICES.glob("nvidia*"))
