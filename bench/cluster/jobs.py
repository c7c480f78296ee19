"""Jobs of the recovery benchmark on the test cluster: kitctl's, and torchrun's in the same pods."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from bench.cluster.commands import KITCTL, SHELL, job, manifest
from bench.recovery.jobs import GROUP_TIMEOUT, RESTART_LOOP, TUNED, Rank, await_group, joined
from bench.recovery.ranks import SNAPSHOT_EVERY
from kitctl.kinds import KINDS
from tests.cluster.kind.settings import SHARED
from tests.cluster.kubectl import get, kubectl

Manifest = dict[str, Any]
POLL_SECONDS = 0.05
SPARE_SECONDS = 120.0  # until a lost pod has been replaced, and stands by
MODULES = ("__init__", "cluster/__init__", "cluster/ranks", "cluster/torchrun", "recovery/__init__", "recovery/ranks")
FILES = tuple(f"--send=bench/{name}.py" for name in MODULES)
COMMON = ("--snapshot-every", str(SNAPSHOT_EVERY), "--grace-period", "30s")
ENV = {
    "GLOO_SOCKET_IFNAME": "eth0",
    "GROUP_TIMEOUT": str(GROUP_TIMEOUT),
    "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
    "USE_LIBUV": "0",
}
TORCHRUN = ("--max-restarts=1000", "--monitor-interval=0.1", "-m", "bench.cluster.ranks", "plain")
OBJECTS = "jobs,jobsets,pytorchjobs,services,configmaps,secrets,roles,rolebindings,serviceaccounts,networkpolicies,pvc"


def in_a_loop(made: Manifest) -> None:
    """The pods of an Indexed Job run torchrun, in a loop that starts it again."""
    _run_torchrun(made["spec"]["template"], RESTART_LOOP)


def as_kubeflow_does(made: Manifest) -> None:
    """The workers of a PyTorchJob run torchrun, and their kubelets start them again."""
    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["restartPolicy"] = "OnFailure"
    _run_torchrun(worker["template"], ())


def as_a_job_set_does(made: Manifest) -> None:
    """The pods of a JobSet run torchrun, and their kubelets start them again."""
    (nodes,) = made["spec"]["replicatedJobs"]
    job = nodes["template"]["spec"]
    del job["podFailurePolicy"]  # Kubernetes allows one only where kubelets start nothing again
    job["template"]["spec"]["restartPolicy"] = "OnFailure"
    _run_torchrun(job["template"], ())


def _run_torchrun(template: Manifest, prefix: tuple[str, ...]) -> None:
    (container,) = template["spec"]["containers"]
    container.pop("command", None)  # which brings the trainer
    container["args"] = [*prefix, "python", "-m", "bench.cluster.torchrun", TUNED, *TORCHRUN]
    container["env"] += [{"name": name, "value": value} for name, value in ENV.items()]


@dataclass(frozen=True, kw_only=True)
class System:
    """A system under test.

    Attributes:
        kind: of the job.
        loop: of its ranks (``bench.recovery.ranks``).
        spares: nodes that stand by. The fourth pod shares a worker, of which there are three.
        options: of ``kitctl render``.
        change: turns kitctl's manifest into that of another system.
    """

    kind: str = "IndexedJob"
    loop: Literal["trainer", "plain"] = "trainer"
    spares: int = 0
    options: tuple[str, ...] = ()
    change: Callable[[Manifest], None] = lambda _: None


SYSTEMS: Mapping[str, System] = {
    "kitctl": System(),
    "kitctl, spare": System(spares=1),
    "kitctl, not in place": System(options=("--env", "KIT_RESTART_IN_PLACE=0")),
    "kitctl, JobSet": System(kind="JobSet"),
    "kitctl, PyTorchJob": System(kind="PyTorchJob"),
    "torchrun, Indexed Job": System(loop="plain", change=in_a_loop),
    "torchrun, JobSet": System(kind="JobSet", loop="plain", change=as_a_job_set_does),
    "torchrun, PyTorchJob": System(kind="PyTorchJob", loop="plain", change=as_kubeflow_does),
}


@dataclass(kw_only=True)
class ClusterJob:
    """A running job; a context manager that deletes it on exit."""

    system: System
    namespace: str
    name: str
    nodes: str
    _ranks: dict[Path, Rank] = field(default_factory=dict)

    def __enter__(self) -> Self:
        kubectl("apply", "--server-side", "-f", "-", given=json.dumps(self._manifest()))
        return self

    def __exit__(self, *_: object) -> None:
        chosen = ("-l", f"app.kubernetes.io/instance={self.name}", "-n", self.namespace)
        kubectl("delete", OBJECTS, *chosen, "--wait=false")
        kubectl("delete", "pods", *chosen, "--grace-period=1", "--wait=true")

    def _manifest(self) -> Manifest:
        spares = self.system.spares
        spread = ("--set", f"scheduling.spread={'prefer' if spares else 'require'}")
        options = (*COMMON, *spread, *self.system.options, "--kind", self.system.kind, *FILES)
        module = ("-m", "bench.cluster.ranks", self.system.loop)
        nodes = f"{self.nodes}+{spares}" if spares else self.nodes
        made: Manifest = json.loads(manifest([*job(self.name, self.namespace, nodes=nodes), *options, *module]))
        (found,) = (one for one in made["items"] if one["kind"] in {"Job", "JobSet", "PyTorchJob"})
        self.system.change(found)
        return made

    def ranks(self) -> list[Rank]:
        """All ranks that have joined a group, including those that have ended."""
        files = SHARED.glob(f"pvc-*_{self.namespace}_{self.name}-snapshots/record/*/*.jsonl")
        return joined(files, self._ranks)

    def await_group(self, size: int, *, steps: int, limit: float) -> bool:
        """Wait up to ``limit`` seconds for a group of this size to take some steps; returns whether it has."""

        def recent() -> list[Rank]:
            return [rank for rank in self.ranks() if rank.steps and rank.steps[-1] > time.monotonic() - 1.0]

        return await_group(recent, size, steps=steps, limit=limit)

    def target(self) -> int:
        """The node to hit: 1, since the nodes meet at node 0; with spares, the next that trains, once one stands by."""
        command = [*KITCTL, "status", self.name, "-n", self.namespace, "-o", "json"]
        ending = time.monotonic() + SPARE_SECONDS
        while self.system.spares and time.monotonic() < ending:
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=SHELL).stdout)
            states: dict[int, str] = {one["index"]: one["state"] for one in found["nodes"]}
            if "Spare" in states.values():
                return next(node for node, state in states.items() if node and state == "Running")
            time.sleep(1.0)
        assert not self.system.spares, f"no spare in {SPARE_SECONDS:.0f} s"
        return 1

    def pod(self, node: int) -> Manifest:
        """The running pod of a node."""
        chosen = f"app.kubernetes.io/instance={self.name},{KINDS[self.system.kind].index_label}={node}"
        (found,) = get(self.namespace, "pods", "-l", chosen, "--field-selector", "status.phase=Running")["items"]
        pod: Manifest = found
        return pod

    def python(self, node: int, code: str, *arguments: str) -> str:
        """What a program prints in a node's container, which it may end."""
        pod = self.pod(node)["metadata"]["name"]
        command = ["kubectl", "exec", "-n", self.namespace, pod, "--", "python", "-P", "-c", code, *arguments]
        return subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=SHELL).stdout
