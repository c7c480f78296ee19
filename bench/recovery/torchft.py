"""Nodes of torchft: each is a replica group of one rank, and a lighthouse on a machine of its own counts them.

Of the released 0.2.0, DDP ends a rank when a peer is lost (an assertion); the nightly build goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.measure import ROOT
from bench.recovery.faults import NODES
from bench.recovery.jobs import RESTART_LOOP, ranks
from bench.recovery.network import Machine

VERSION: Final = "2026.10.26"
FOLDER: Final = ROOT / ".cache" / "bench" / f"torchft-{VERSION}"
REQUIREMENTS: Final = ("opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk", "opentelemetry-api")
LIGHTHOUSE_PORT: Final = 29510
HEARTBEAT_MS: Final = 500  # without one, a replica is lost; it sends one every 100 ms; the default is 5,000
LIGHTHOUSE: Final = f"""\
import threading
from torchft.coordination import LighthouseServer
server = LighthouseServer(
    bind="0.0.0.0:{LIGHTHOUSE_PORT}",
    min_replicas=2,
    quorum_tick_ms=20,
    join_timeout_ms={HEARTBEAT_MS},
    heartbeat_timeout_ms={HEARTBEAT_MS},
)
threading.Event().wait()
"""


def install() -> None:
    """Install torchft beside the environment, whose torch it takes."""
    if FOLDER.exists():
        return
    print("  installing torchft into a folder of its own", flush=True)
    scratch = FOLDER.with_suffix(".new")
    uv = (sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", sys.executable, "--target", str(scratch))
    environ = {"UV_SYSTEM_CERTS": "1", **os.environ}
    subprocess.run([*uv, *REQUIREMENTS], check=True, env=environ)
    subprocess.run([*uv, "--no-deps", f"torchft-nightly=={VERSION}"], check=True, env=environ)
    scratch.rename(FOLDER)


def start(node: int, machine: Machine, host: Machine, _nodes: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a node, and of the lighthouse, which comes after them."""
    subnet = host.address.rpartition(".")[0]
    env = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(FOLDER)]),
        "TORCHFT_LIGHTHOUSE": f"http://{subnet}.{NODES + 1}:{LIGHTHOUSE_PORT}",
        "GLOO_SOCKET_IFNAME": "eth0",
        "REPLICAS": str(NODES),
    }
    if node == NODES:
        return [sys.executable, "-c", LIGHTHOUSE], env
    options = ("--nnodes=1", "--nproc-per-node=1", "--max-restarts=1000", "--monitor-interval=0.1")
    address = (f"--master-addr={machine.address}", "--master-port=29600")
    torchrun = (sys.executable, "-m", "torch.distributed.run", *options, *address)
    return [*RESTART_LOOP, *torchrun, *ranks("torchft", folder)], env
