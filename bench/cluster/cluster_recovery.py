"""Time from a fault to the next optimizer step on the test cluster: kitctl, and torchrun in the same pods.

python -m bench.cluster.cluster_recovery --minutes 20

Trials accumulate over runs, in rounds, as in ``bench.recovery.recovery``.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cluster.commands import SHELL, temporary_namespace
from bench.cluster.jobs import POLL_SECONDS, SYSTEMS, ClusterJob
from bench.cluster.table import Trial, publish
from bench.measure import earlier
from bench.recovery.jobs import Rank
from tests.cluster.kubectl import kubectl

TRIALS = 5
STEADY = 20  # steps of a whole group before a fault
START_LIMIT = 300.0  # seconds until the first group has formed
LIMIT = 240.0  # seconds without a step after which a job counts as dead

# torchrun's ranks would outlive their agent; kitctl's do not.
KILL_ALL = """
import os, signal, time
from pathlib import Path
mine = Path("/proc/self/exe").readlink()
print(time.monotonic(), flush=True)
for path in Path("/proc").glob("[0-9]*"):
    if path.name != str(os.getpid()) and (path / "exe").readlink() == mine:
        os.kill(int(path.name), signal.SIGKILL)
"""
KILL_AGENT = """
import time
from kittrain.agent import fault_injection
print(time.monotonic(), flush=True)
fault_injection.main()
"""


def killed_agent(job: ClusterJob) -> float:
    """Send SIGKILL to a node's agent and its ranks; returns the time."""
    code = KILL_AGENT if job.system.loop == "trainer" else KILL_ALL
    return float(job.python(job.target(), code, "KILL").split()[0])


def deleted_pod(job: ClusterJob, *options: str) -> float:
    """Delete a pod, as a drain of its Kubernetes node does; returns the time."""
    pod, moment = job.pod(job.target())["metadata"]["name"], time.monotonic()
    kubectl("delete", "pod", "-n", job.namespace, pod, "--wait=false", *options)
    return moment


def lost_pod(job: ClusterJob) -> float:
    """Delete a pod without grace: its processes are killed; returns the time."""
    return deleted_pod(job, "--grace-period=0", "--force")


def lost_machine(job: ClusterJob) -> float:
    """Drop all packets of a node, so that the others lose it without a closed connection; returns the time.

    To Kubernetes it is well, which would replace the pod of a machine without power only after five minutes.
    """
    pod = job.pod(job.target())
    on_machine = ("docker", "exec", pod["spec"]["nodeName"], "ip")
    route = _output(*on_machine, "-o", "route", "get", pod["status"]["podIP"]).split()
    moment = time.monotonic()
    _output(*on_machine, "link", "set", route[route.index("dev") + 1], "down")
    return moment


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=SHELL).stdout


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, and the number of nodes of the job that it hits."""

    nodes: str
    inject: Callable[[ClusterJob], float]


FAULTS = {
    "the agent is killed": Fault(nodes="3", inject=killed_agent),
    "the pod is deleted": Fault(nodes="3", inject=deleted_pod),
    "the pod is deleted, no grace": Fault(nodes="3", inject=lost_pod),
    "the machine is lost": Fault(nodes="2:3", inject=lost_machine),
}


# Table -> its systems and faults.
SPARE_TABLE = "cluster-recovery-spare"
TABLES = {
    "cluster-recovery": (
        [name for name, system in SYSTEMS.items() if not system.spares],
        ["the agent is killed", "the pod is deleted", "the machine is lost"],
    ),
    SPARE_TABLE: (
        ["kitctl", "kitctl, spare", "torchrun, Indexed Job", "torchrun, PyTorchJob"],
        ["the pod is deleted", "the pod is deleted, no grace"],
    ),
}


def main(table: str = "cluster-recovery") -> None:
    """Measure, and write the table."""
    all_systems, all_faults = TABLES[table]
    parser = argparse.ArgumentParser("bench.cluster.cluster_recovery", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after the job that exceeds them")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=all_faults, help="what to inject")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=all_systems, help="what to measure")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each fault in each system")
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes
    trials = [Trial(**one) for one in earlier(table)]
    with temporary_namespace() as namespace:
        for number in itertools.count():
            batch = next_batch(trials, args.systems, args.faults, args.trials)
            if not batch or time.monotonic() > deadline:
                return
            for trial in run_batch(*batch, namespace=namespace, name=f"r{number}"):
                trials.append(trial)
                publish(table, trials, all_faults, all_systems)
                took = "dead" if trial.seconds is None else f"{trial.seconds:.2f} s"
                print(f"  {trial.system}, {trial.fault}: {took}", flush=True)


def next_batch(
    trials: Sequence[Trial], systems: Sequence[str], faults: Sequence[str], wanted: int
) -> tuple[str, list[str]] | None:
    """The next job: a system, and the faults of one shape that have the fewest trials, in turns first."""
    counts = {(system, fault): 0 for fault in faults for system in systems}
    for trial in trials:
        if (trial.system, trial.fault) in counts:
            counts[trial.system, trial.fault] += 1
    fewest = min(counts.values())
    if fewest >= wanted:
        return None
    system, first = next(one for one, count in counts.items() if count == fewest)
    same = [fault for fault in faults if FAULTS[fault].nodes == FAULTS[first].nodes]
    due = [fault for fault in same if counts[system, fault] == fewest]
    return system, due[::-1] if fewest % 2 else due


def run_batch(system: str, faults: Sequence[str], *, namespace: str, name: str) -> Iterator[Trial]:
    """Inject faults into one job, until it does not recover."""
    with ClusterJob(system=SYSTEMS[system], namespace=namespace, name=name, nodes=FAULTS[faults[0]].nodes) as job:
        for fault in faults:
            if not job.await_group(3, steps=STEADY, limit=START_LIMIT):
                raise SystemExit(f"{system} has no group of 3")
            trial = measure(job, system, fault)
            yield trial
            if trial.seconds is None:
                return


def measure(job: ClusterJob, system: str, fault: str) -> Trial:
    """Inject a fault into a training job."""
    old = {rank.file for rank in job.ranks()}
    first = _first_step(job, old, moment := FAULTS[fault].inject(job))
    if first is None:
        return Trial(system=system, fault=fault)
    last = max(rank.last for rank in job.ranks() if rank.file in old and rank.steps)
    return Trial(
        system=system,
        fault=fault,
        seconds=first.steps[0] - moment,
        lost=max(last - first.first + 1, 0),
        world=first.world,
    )


def _first_step(job: ClusterJob, old: set[Path], moment: float) -> Rank | None:
    while time.monotonic() < moment + LIMIT:
        stepped = [rank for rank in job.ranks() if rank.file not in old and rank.steps and rank.first]
        if stepped:
            return min(stepped, key=lambda rank: rank.steps[0])
        time.sleep(POLL_SECONDS)
    return None


if __name__ == "__main__":
    main()
