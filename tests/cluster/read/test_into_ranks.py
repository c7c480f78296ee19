"""stacks, exec and port-forward on a real cluster: a real kubelet answers as the one of the fast tests does."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from kitctl.api.client import Client
from tests.cluster.commands import job, kitctl, until_status
from tests.cluster.kind.settings import KUBECONFIG
from tests.cluster.kubectl import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(800)]
HUB = 29400  # where node 0 listens
TOY = ("-m", "kittrain.workloads.toy", "10000", "--samples", "256", "--batch_size", "16", "--step-time", "0.1")


@pytest.mark.wide
def test_into_the_ranks_of_a_job(namespace: str, tmp_path: Path) -> None:
    kitctl("submit", *job("run", namespace, "--nodes", "2", "--procs-per-node", "2", *TOY))
    until_status("run", namespace, lambda state: state["worldSize"] == 4 and (state["progress"]["step"] or 0) > 3)
    where = ("run", "-n", namespace)

    found = json.loads(kitctl("stacks", *where, "-o", "json"))
    assert {one["rank"]: bool(one["threads"]) for node in found["nodes"] for one in node["ranks"]} == dict.fromkeys(
        range(4), True
    )
    script = "echo rank $RANK of $WORLD_SIZE; hostname; env | grep -c '^MASTER_\\|^KIT_'; exit 7"
    output = kitctl("exec", *where, "--rank", "3", "--", "sh", "-c", script, exit_code=7)
    assert "rank 3 of 4\n" in output
    assert "rank 3: pod run-1" in output
    assert "\n0\n" in output
    reaches_a_port(namespace, "run", KUBECONFIG)
    kitctl("profile", *where, "--rank", "2", "--steps", "2", "-o", str(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kitctl("delete", *where, "-y")


def reaches_a_port(namespace: str, name: str, kubeconfig: Path) -> None:
    """A connection to a port of rank 0's node, by port-forward."""
    told: list[str] = []
    found = Client(target="cluster", kubeconfig=kubeconfig).job(name, namespace)
    threading.Thread(target=found.forward_port, args=(0, 0, HUB, told.append), daemon=True).start()
    until(lambda: told)
    port = int(told[0].partition("127.0.0.1:")[2].partition(",")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"no handshake\n")
        while connection.recv(4096):  # the hub greets, and closes the connection of who is no node
            pass
    assert len(told) == 1, told
