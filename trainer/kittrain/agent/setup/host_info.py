"""Inspects the host or pod, and derives the ranks' environment and warnings from what it finds.

The network interface, the visible GPUs and the size of /dev/shm are not known when manifests are rendered.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import shutil
import socket
import struct
import sys
from collections.abc import Collection, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kittrain.job.env import NodeEnv

INTERFACE_VARIABLES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
ACCELERATE_ON_CPUS: Final[Mapping[str, str]] = {
    "ACCELERATE_USE_CPU": "true",  # without it, Accelerate forms no process group on CPUs
    "ACCELERATE_TORCH_DEVICE": "cpu",  # it would be cpu:1 on local rank 1, to which torch.load cannot map a checkpoint
}
CONTAINER_SHM: Final = 64 << 20  # bytes; the default of container runtimes
LOOPBACK: Final = frozenset({"lo", "lo0"})
SIOCGIFADDR: Final = 0x8915  # linux/sockios.h


class HostError(Exception):
    """The node lacks a resource that the job requested."""


@dataclass(frozen=True, kw_only=True)
class HostInfo:
    """What ``inspect`` found."""

    local_addr: str  # the address at which other nodes reach this one
    interfaces: Mapping[str, str]  # address -> interface
    shm_bytes: int | None  # size of /dev/shm; None if it does not exist
    accelerated: bool  # whether torch may find something else than CPUs to compute on


@dataclass(frozen=True, kw_only=True)
class LaunchSettings:
    """Variables to set for the ranks, and warnings for the user."""

    env: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def check_gpus(node: NodeEnv, *, visible: int) -> None:
    """Fail instead of falling back to the CPU.

    Raises:
        HostError: ``visible``, torch's count, is less than requested.
    """
    if node.backend != "gloo" and visible < node.job.gpus_per_node:
        requested = f"{node.job.gpus_per_node} GPU{'s' if node.job.gpus_per_node > 1 else ''} requested"
        raise HostError(
            f"{requested}, but {visible} visible to torch: check the driver, the device plugin, "
            "the image's torch build and CUDA_VISIBLE_DEVICES; only `backend: gloo` runs without GPUs"
        )


def check_backend(node: NodeEnv, *, torch: str, built_with: Collection[str], accelerated: bool) -> None:
    """Fail before ranks do, each for itself: no other pod of the job has another torch.

    Args:
        node: has the backend that the job asks for, and its ranks.
        torch: its version.
        built_with: the backends that it has. With one that only scripts choose, such as MPI, nothing is judged.
        accelerated: whether torch may find something else than CPUs to compute on.

    Raises:
        HostError: this torch is built without the backend that ranks will use.
    """
    alone = node.job.max_nodes * node.procs_per_node == 1
    on_gpus = node.backend == "nccl" or (node.backend == "auto" and accelerated and node.job.gpus_per_node > 0)
    wanted = "nccl" if on_gpus else "gloo"
    if alone or wanted in built_with or not {"gloo", "nccl"}.issuperset(built_with):
        return
    instead = ", or --backend gloo" if on_gpus and "gloo" in built_with else ""
    raise HostError(f"the image's torch {torch} is built without {wanted}: choose an image that has it{instead}")


def inspect(node: NodeEnv, *, accelerated: bool) -> HostInfo:
    """Inspect the host; node 0's name must resolve by now. ``accelerated`` is what torch says."""
    shm = Path("/dev/shm")  # noqa: S108  only its size is read
    return HostInfo(
        local_addr=node.local_addr or source_address(node.run.rendezvous_host, node.run.rendezvous_port),
        interfaces=interfaces(),
        shm_bytes=shutil.disk_usage(shm).total if shm.is_dir() else None,
        accelerated=accelerated,
    )


def launch_settings(node: NodeEnv, host: HostInfo, environ: Mapping[str, str]) -> LaunchSettings:
    """Derive the settings; variables that the user has set are never overridden."""
    env: dict[str, str] = {}
    interface = node.job.nccl.interface or host.interfaces.get(host.local_addr)
    if interface:
        env |= {name: interface for name in INTERFACE_VARIABLES if name not in environ}
    on_cpus = node.backend == "gloo" or (node.backend == "auto" and not host.accelerated)
    if on_cpus and not node.job.gpus_per_node:
        env |= {name: value for name, value in ACCELERATE_ON_CPUS.items() if name not in environ}
    if node.job.gpus_per_node and node.backend != "gloo":
        env |= {name: value for name, value in _flight_recorder(node).items() if name not in environ}
    if any(environ.get(name) for name in PROXY_VARIABLES):
        env |= _without_proxy(node, host, environ)
    return LaunchSettings(env=env, warnings=tuple(_warnings(node, host, environ)))


def share_cores(node: NodeEnv, environ: MutableMapping[str, str]) -> None:
    """Limit each of several ranks to one OpenMP thread, as torchrun does.

    Call it before torch is imported: torch reads the variable then, and ranks are forked from this process.
    """
    if node.procs_per_node > 1:
        environ.setdefault("OMP_NUM_THREADS", "1")


def _flight_recorder(node: NodeEnv) -> dict[str, str]:
    """Have NCCL record its last collectives, and dump them to the log folder on a timeout."""
    size, file = flight_recorder_names()
    env = {size: "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    if node.run.log_dir:
        env[file] = f"{node.run.log_dir}/node-{node.node_index}/nccl-trace-rank-"
    return env


def flight_recorder_names() -> tuple[str, str]:
    """The variables of the installed torch for the size and the file of the record.

    Newer versions have names without NCCL, and warn of the former ones, which are all that older versions know. Torch
    itself is not imported: it would take seconds.
    """
    spec = importlib.util.find_spec("torch")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    known = ""
    with suppress(OSError):
        known = (folder / "include/torch/csrc/distributed/c10d/FlightRecorder.hpp").read_text("utf-8", "replace")
    names = (
        ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    )
    size, file = (new if new in known else former for new, former in names)
    return size, file


def _without_proxy(node: NodeEnv, host: HostInfo, environ: Mapping[str, str]) -> dict[str, str]:
    given = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    hosts = [host for host in given.split(",") if host]
    hosts += [host for host in (node.run.rendezvous_host, host.local_addr) if host not in hosts]
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(hosts))


def _warnings(node: NodeEnv, host: HostInfo, environ: Mapping[str, str]) -> list[str]:
    warnings = []
    if (node.procs_per_node > 1 or node.job.gpus_per_node) and host.shm_bytes == CONTAINER_SHM:
        warnings += [
            "shared memory has the container default of 64 MiB: data loaders and NCCL may need more; fix: sharedMemory"
        ]
    remote = host.local_addr and not ipaddress.ip_address(host.local_addr).is_loopback
    for name in INTERFACE_VARIABLES:
        if remote and node.job.all_nodes > 1 and environ.get(name, "").split("=")[-1] in LOOPBACK:
            what = f"{name}={environ[name]}: other nodes cannot be reached through the loopback interface"
            warnings += [f"{what}; fix: leave it out"]
    return warnings


def source_address(host: str, port: int) -> str:
    """The source address of packets to ``host``; empty if the name does not resolve yet."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # UDP: looks up the route, sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def interfaces() -> dict[str, str]:
    """Address -> interface; on other systems than Linux only loopback."""
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
