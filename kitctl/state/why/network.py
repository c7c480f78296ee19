"""Causes in rendezvous and network. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

NETWORK: Final = Family(
    "Rendezvous and network",
    (
        Rule(
            r"Unable to find address for: ([\w-]+)",
            "the node has no network interface {0}",
            "leave out --interface and GLOO_SOCKET_IFNAME, or name one that `ip link` lists on each node",
        ),
        Rule(
            r"Bootstrap : no socket interface found",
            "NCCL finds none of the network interfaces that it may use",
            "leave out --interface and NCCL_SOCKET_IFNAME, or name one that `ip link` lists on each node",
        ),
        Rule(
            r"termination not confirmed: node (\S+) is unreachable",
            "the machine {0} is off or disconnected, and its pod may still run there",
            "switch it on; only if it is off for good: kubectl taint node {0} "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        ),
    ),
)
