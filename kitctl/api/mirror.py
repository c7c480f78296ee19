"""The snapshots that a job has copied to an object store, whether or not the job, or its cluster, still exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kitctl.api.snapshot_client import SnapshotClient
from kitctl.targets import SnapshotStore
from kitctl.targets.local import snapshot_tool


class _Tool:
    """Runs the trainer's tool on this machine, with this shell's credentials; ``store.name`` is the address."""

    def run_snapshot_tool(self, store: SnapshotStore, args: Sequence[str]) -> Iterator[bytes]:
        return snapshot_tool.run_on_mirror(store.name, args)


def of_mirror(url: str) -> SnapshotClient:
    """The snapshots in a mirror, ``s3://bucket/prefix``.

    It takes the package ``obstore`` here, and the store's credentials in this process's environment.
    """
    return SnapshotClient(target=_Tool(), store=SnapshotStore(namespace="", name=url))
