"""The command and the environment of a node on this machine. Pure.

The environment is the one that manifests declare (``names``), so that a job runs the same on both targets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import kitctl
from kitctl.base import names
from kitctl.render.environment import common_env, has_secret, script_env, torchrun_env
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.local.folder import JobFolder
from kitctl.targets.local.interpreter import with_library
from kitctl.targets.local.records import SubmittedJob
from kitjob import document, variables
from kitjob.run import Code, Packages, RunFacts

LOOPBACK = "127.0.0.1"
NODE_FOLDER = "node-{index}"  # in the folder of a job's snapshots, if each node has one of its own


def command(job: SubmittedJob) -> list[str]:
    """The agent's command line, with the interpreter that the job was submitted with."""
    return [job.python, *names.PYTHON[1:], names.AGENT, *arguments(job)]


def arguments(job: SubmittedJob) -> list[str]:
    """The agent's arguments."""
    return ["--", *job.spec.command, *job.spec.args]


def snapshot_dir(spec: JobSpec, state: Path) -> Path | None:
    """The folder of a job's snapshots, outside the job's folder: like a claim they outlive the job."""
    if not spec.snapshots.enabled:
        return None
    return stored_dir(state, spec.namespace, spec.name, spec.snapshots.claim)


def stored_dir(state: Path, namespace: str, name: str, claim: str) -> Path:
    """The snapshot folder of a job of that name; with a claim, its folder within the claim's."""
    return state / "claims" / namespace / claim / name if claim else state / "snapshots" / namespace / name


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One attempt to start a node."""

    folder: JobFolder
    job: SubmittedJob
    index: int
    attempt: int
    port: int
    state: Path


def environment(this: Launch, base: Mapping[str, str]) -> dict[str, str]:
    """A node's whole environment; ``base`` is the caller's."""
    spec = this.job.spec
    ours = {
        variables.PET_RDZV_ENDPOINT: f"{LOOPBACK}:{this.port}",
        variables.PET_RDZV_ID: this.job.run,
        variables.PET_LOCAL_ADDR: LOOPBACK,
        variables.KIT_SPEC: document.write(spec, _run(this)),
        variables.KIT_NODE_INDEX: str(this.index),
        variables.KIT_NODE_NAME: "localhost",
        variables.KIT_POD: pod(spec.name, this.index),
        variables.KIT_TERMINATION_LOG: str(this.folder.node(this.index).termination_path(this.attempt)),
    }
    if (snapshots := snapshot_dir(spec, this.state)) is not None:
        own = snapshots / NODE_FOLDER.format(index=this.index)
        ours[variables.KIT_SNAPSHOT_DIR] = str(snapshots if spec.snapshots.storage == "claim" else own)
    share = _share(spec, this.index, base)
    inherited = script_env() | _inherited(base) | torchrun_env(spec) | common_env(spec)
    return with_library({**inherited, **share, **ours, **spec.env}, this.job.library)


def _run(this: Launch) -> RunFacts:
    """What a node of this machine is told about the run."""
    return RunFacts(
        kitctl=kitctl.__version__,
        rendezvous_host=LOOPBACK,
        rendezvous_port=this.port,
        log_dir=str(this.folder.path / "ranks"),
        report=f"file:{this.folder.report_path}",
        secret_file=str(this.folder.secret_path) if has_secret(this.job.spec) else "",
        code=_code(this),
        packages=_packages(this),
    )


def _code(this: Launch) -> Code | None:
    digest, workdir = this.job.code, str(this.folder.node(this.index).workdir)
    return Code(digest=digest, store=str(this.folder.code_store), workdir=workdir) if digest else None


def _packages(this: Launch) -> Packages | None:
    digest, store = this.job.requirements, str(this.folder.code_store)
    return Packages(digest=digest, store=store, cache=this.job.packages) if digest else None


def pod(name: str, index: int) -> str:
    """A node's name; on a cluster it is the pod's host name."""
    return f"{name}-{index}"


def _inherited(base: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without a launcher's variables: the caller may be a rank itself."""
    ours = variables.SWITCHES  # of this job's env alone
    return {name: value for name, value in base.items() if name not in ours and not variables.is_reserved(name)}


def _share(spec: JobSpec, index: int, base: Mapping[str, str]) -> dict[str, str]:
    """This node's share of the machine: its GPUs, and no more threads than there are cores."""
    share = {} if "OMP_NUM_THREADS" in base else {"OMP_NUM_THREADS": str(_threads(spec))}
    if spec.gpus_per_node:
        visible = [gpu for gpu in base.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        gpus = visible or [str(gpu) for gpu in range(spec.gpus_per_node * spec.all_nodes)]
        share["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[index * spec.gpus_per_node :][: spec.gpus_per_node])
    return share


def _threads(spec: JobSpec) -> int:
    return max(1, (os.cpu_count() or 1) // spec.max_ranks)
