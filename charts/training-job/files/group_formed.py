"""Wait until the job's nodes have formed a group, according to its status; `helm test` runs this in the cluster.

Without a status (security.reportStatus: false), wait until node 0's name resolves.

    python group_formed.py STATUS_CONFIGMAP_OR_EMPTY NODE_0 FEWEST_NODES
"""  # noqa: INP001 - a file of the chart, not a module

import json
import os
import socket
import ssl
import sys
import time
from http.client import HTTPSConnection
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT = 240  # seconds; `helm test` itself gives up after 300


def report(name: str) -> dict:
    """The latest report of rank 0's agent; empty before the first."""
    server = HTTPSConnection(
        os.environ["KUBERNETES_SERVICE_HOST"],
        int(os.environ["KUBERNETES_SERVICE_PORT"]),
        context=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt")),
        timeout=10,
    )
    namespace = (ACCOUNT / "namespace").read_text()
    token = (ACCOUNT / "token").read_text()
    server.request(
        "GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}", headers={"Authorization": f"Bearer {token}"}
    )
    answer = json.load(server.getresponse())
    if answer["kind"] == "Status":
        raise OSError(answer["message"])
    return json.loads(answer.get("data", {}).get("report", "{}"))


def check(status: str, node_0: str, fewest: int) -> tuple[bool, str]:
    """Whether the group is complete, and a description of it."""
    try:
        if not status:
            return True, f"{node_0} is {socket.getaddrinfo(node_0, None)[0][4][0]}"
        found = report(status)
    except OSError as error:
        return False, str(error)
    nodes = len(found.get("nodes", {}))
    what = f"round {found.get('round', 0)}, nodes: {nodes}, ranks: {found.get('worldSize', 0)}"
    return nodes >= fewest and not found["forming"], what


def main(status: str, node_0: str, fewest: str) -> str:
    """Wait for the group; returns an exit message on timeout."""
    end = time.monotonic() + TIMEOUT
    while True:
        complete, seen = check(status, node_0, int(fewest))
        if complete:
            print(seen)  # noqa: T201 - into the pod's log, which helm shows
            return ""
        if time.monotonic() > end:
            return f"no group of at least {fewest} nodes within {TIMEOUT} s: {seen}"
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or None)
