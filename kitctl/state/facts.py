"""Facts about a job: what its agents report, and what a target finds out (from files, or a few API requests)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from kitjob.report import Preparation, Report, Termination

OWN_VOLUMES: Final = "a volume of each node"
OWN_MEMORY: Final = "the memory of each node"
OF_NODES: Final = frozenset({OWN_VOLUMES, OWN_MEMORY})  # where snapshots go with the nodes
# Why Kueue makes no Workload of a job; NAMESPACE is the job's.
NO_WORKLOAD_FIX: Final = (
    "see that Kueue manages the namespace: kubectl get namespace NAMESPACE --show-labels has to fit "
    "managedJobsNamespaceSelector of kubectl get configmap -n kueue-system kueue-manager-config -o yaml (and the job's "
    "kind be in its integrations.frameworks); and that it runs: kubectl get pods -n kueue-system"
)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one node; times are Unix seconds."""

    index: int
    pod: str
    host: str = ""
    alive: bool = False
    attempts: int = 0
    pid: int | None = None  # of its agent, if that identifies it: in pods it does not
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    termination: Termination | None = None
    note: str = ""
    before: str = ""  # how the previous attempt ended


class QueuePosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job stands in a queue of the cluster."""

    name: str
    """Name of the queue."""
    state: Literal["Waiting", "Admitted", "Stopped", "Finished"]
    """Waiting, Admitted, Stopped (it does not wait until it is resumed) or Finished."""
    position: int | None = None
    """1 for the job that is next in the cluster queue. Null: it does not wait, or that is unknown."""
    reason: str = ""
    """Why it is in this state, in the queue's own words. Empty: nothing to explain."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a job."""

    name: str
    namespace: str
    target: str
    kind: str
    node_range: str
    desired_nodes: int
    created: float
    suspended: bool = False
    result: Literal["Succeeded", "Failed", "Cancelled"] | None = None
    ended: float | None = None
    failure: Termination | None = None
    nodes: tuple[NodeFacts, ...] = ()
    report: Report | None = None
    preparing: Mapping[int, Preparation] = {}  # by node; may be left from an earlier process of the node
    reports: bool = True  # whether its agents publish one
    unreported: str = ""  # why they cannot, although the job has them publish one
    grace_seconds: float = 30.0  # from SIGTERM to SIGKILL
    snapshots: str = ""
    outputs: str = ""  # where ranks write by relative path, if that is a folder of the job's own
    queue: QueuePosition | None = None
    note: str = ""
    halted: str = ""  # why nothing starts its nodes again, whether they run now or not
