"""Lets ``jax.distributed.initialize()`` without arguments work in a rank: JAX finds kittrain among its clusters.

JAX has no variables for the number and the index of a process; each launcher that it knows is a class of its own.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from types import ModuleType
from typing import Any, Final

MODULE: Final = "jax._src.clusters.cluster"  # where JAX has the base class; there is no public name for it
KEY: Final = "kit/jax"
TIMEOUT: Final = 300  # seconds; JAX's own default

_stores: list[Any] = []  # kept for as long as the process lives: rank 0's may be the server


def register(module: ModuleType) -> None:
    """Add kittrain to JAX's clusters, once ``MODULE`` has been imported. A JAX without the class is left alone."""
    base: Any = getattr(module, "ClusterEnv", None)
    if base is None:
        return

    class KitCluster(base):  # type: ignore[misc]  # of a package that is not installed here
        """A rank of a job; JAX adds the class to its list when it is defined."""

        name = "kit"

        @classmethod
        def is_env_present(cls) -> bool:
            """Whether an agent started this process."""
            return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()

        @classmethod
        def get_coordinator_address(cls, timeout_secs: int | None = None, **options: Any) -> str:
            """Process 0's address, with a port that it chooses and sends to the others."""
            return coordinator(timeout_secs or TIMEOUT, options.get("override_coordinator_port"))

        @classmethod
        def get_process_count(cls) -> int:
            """The number of ranks."""
            return int(os.environ["WORLD_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            """This rank."""
            return int(os.environ["RANK"])

        @classmethod
        def get_local_process_id(cls) -> int | None:
            """The GPU of this rank; None: a node's only rank has all of its GPUs."""
            return int(os.environ["LOCAL_RANK"]) if os.environ.get("LOCAL_WORLD_SIZE", "1") != "1" else None


def coordinator(timeout: int, port: str | None) -> str:
    """The address of JAX's coordinator, the same on all ranks. Collective.

    Args:
        timeout: seconds to wait for rank 0.
        port: that the user has chosen; None: any that is free on rank 0's host.
    """
    host = os.environ["MASTER_ADDR"]
    if port:
        return f"{host}:{port}"
    import torch.distributed as dist  # noqa: PLC0415  a rank that uses JAX need not have imported it

    store, rank, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=timeout)))
    _stores.append(store)
    if rank == 0:
        with socket.create_server(("", 0)) as server:
            store.set(KEY, str(server.getsockname()[1]))
    return f"{host}:{store.get(KEY).decode()}"
