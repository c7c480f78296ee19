"""What depends on where the node really runs: facts of the pod in, decisions out.

Manifests carry none of this: the interface, the GPUs that are visible and the size of /dev/shm are only known here.
"""

from __future__ import annotations

import ipaddress
import shutil
import socket
import struct
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kittrain.env import NodeEnv

INTERFACE_VARIABLES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
CONTAINER_SHM: Final = 64 << 20  # bytes; what container runtimes give when nobody asks for more
LOOPBACK: Final = frozenset({"lo", "lo0"})
SIOCGIFADDR: Final = 0x8915  # linux/sockios.h


class SurroundingsError(Exception):
    """The node does not have what the job asked for; names the cause."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was found."""

    local_addr: str  # where the other nodes reach this one
    interfaces: Mapping[str, str]  # address -> interface
    shm_bytes: int | None  # size of /dev/shm; None where there is none


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """What follows: variables to set for the ranks, and what a person should know."""

    env: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def check_gpus(node: NodeEnv, *, visible: int) -> None:
    """No silent CPU: fewer GPUs than asked for are a failure.

    Raises:
        SurroundingsError: ``visible``, torch's count, is too small.
    """
    if node.backend != "gloo" and visible < node.gpus_per_node:
        raise SurroundingsError(
            f"{node.gpus_per_node} GPUs were asked for, {visible} are visible to torch: check the driver, the "
            "device plugin, the image's torch build and CUDA_VISIBLE_DEVICES; only `backend: gloo` goes on without"
        )


def look(node: NodeEnv) -> Facts:
    """Gather the facts; node 0's name must resolve by now."""
    shm = Path("/dev/shm")  # noqa: S108  looked at, nothing is written
    return Facts(
        local_addr=node.local_addr or source_address(node.rendezvous_host, node.rendezvous_port),
        interfaces=interfaces(),
        shm_bytes=shutil.disk_usage(shm).total if shm.is_dir() else None,
    )


def decide(node: NodeEnv, facts: Facts, environ: Mapping[str, str]) -> Decisions:
    """Decide from the facts; what the user has set is never overridden."""
    env: dict[str, str] = {}
    interface = node.interface or facts.interfaces.get(facts.local_addr)
    if interface:
        env |= {name: interface for name in INTERFACE_VARIABLES if name not in environ}
    if node.gpus_per_node and node.backend != "gloo":
        env |= {name: value for name, value in _flight_recorder(node).items() if name not in environ}
    if any(environ.get(name) for name in PROXY_VARIABLES):
        env |= _without_proxy(node, facts, environ)
    return Decisions(env=env, warnings=tuple(_warnings(node, facts, environ)))


def share_cores(node: NodeEnv, environ: MutableMapping[str, str]) -> None:
    """Give each of several ranks one thread, as torchrun does, so that they do not fight for the node's cores.

    To be called before torch is imported: ranks are forked from what has read this by then.
    """
    if node.procs_per_node > 1:
        environ.setdefault("OMP_NUM_THREADS", "1")


def _flight_recorder(node: NodeEnv) -> dict[str, str]:
    """Have NCCL remember its last collectives, and leave them beside the ranks' logs when one of them times out."""
    env = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    if node.log_dir:
        env["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = str(node.log_dir / f"node-{node.node_index}" / "nccl-trace-rank-")
    return env


def _without_proxy(node: NodeEnv, facts: Facts, environ: Mapping[str, str]) -> dict[str, str]:
    given = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    hosts = [host for host in given.split(",") if host]
    hosts += [host for host in (node.rendezvous_host, facts.local_addr) if host not in hosts]
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(hosts))


def _warnings(node: NodeEnv, facts: Facts, environ: Mapping[str, str]) -> list[str]:
    warnings = []
    if (node.procs_per_node > 1 or node.gpus_per_node) and facts.shm_bytes == CONTAINER_SHM:
        warnings += ["shared memory has a container's default of 64 MiB: data loaders and NCCL may need more"]
    remote = facts.local_addr and not ipaddress.ip_address(facts.local_addr).is_loopback
    for name in INTERFACE_VARIABLES:
        if remote and node.max_nodes > 1 and environ.get(name, "").split("=")[-1] in LOOPBACK:
            warnings += [f"{name}={environ[name]}: no other machine can be reached by the loopback interface"]
    return warnings


def source_address(host: str, port: int) -> str:
    """The address that packets to ``host`` leave from; empty where the name does not resolve yet."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # UDP: looks up the route, sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def interfaces() -> dict[str, str]:
    """Address -> interface, as far as the standard library can tell: all of Linux, elsewhere loopback."""
    if sys.platform != "linux":
        return {"127.0.0.1": "lo0", "::1": "lo0"}
    found = dict(_ipv6_interfaces(Path("/proc/net/if_inet6")))
    import fcntl  # noqa: PLC0415  Unix only

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # has no IPv4 address
            found[socket.inet_ntoa(answer[20:24])] = name
    return found


def _ipv6_interfaces(table: Path) -> list[tuple[str, str]]:
    if not table.exists():
        return []
    rows = (line.split() for line in table.read_text().splitlines())
    return [(str(ipaddress.IPv6Address(int(row[0], 16))), row[5]) for row in rows]
