"""The cluster itself: kind's nodes, the pod network between them, the registry beside them, simulated GPUs."""

from __future__ import annotations

import json
import socket
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from itertools import product
from typing import Final

from tests.cluster.kind import stores
from tests.cluster.kind.host import missing_capabilities
from tests.cluster.kind.images import REGISTRY_IMAGE, image_id, pushed
from tests.cluster.kind.settings import (
    CLUSTER,
    FAKE_GPUS,
    KUBECONFIG,
    NODE_IMAGE,
    REGISTRY,
    REGISTRY_CONTAINER,
    REGISTRY_PORT,
    SHARED,
    STATE,
    STORAGE,
)
from tests.cluster.kind.steps import StepError, digest, eventually, finish, finished, forget, read, run, works

SHARED_ON_NODES: Final = "/kitctl-shared"  # also in manifests/local-path.yaml
_POD_NETWORK: Final = "10.244.0.0/16"  # kind's default
# Controllers may send 20 requests a second unless told otherwise, and several tests wait for them. There is one control
# plane, so nobody has to be elected every two seconds; and no cluster here is worth waiting for a disk.
_HASTE: Final = """
kind: ClusterConfiguration
controllerManager: {extraArgs: {kube-api-qps: "200", kube-api-burst: "400", leader-elect: "false"}}
scheduler: {extraArgs: {leader-elect: "false"}}
etcd: {local: {extraArgs: {unsafe-no-fsync: "true"}}}
"""
_SUBNETS: Final = '{range .items[*]}{.metadata.name} {.spec.podCIDR}{"\\n"}{end}'
_ADDRESS: Final = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"


def nodes() -> list[str]:
    """The containers that are the cluster's nodes."""
    return sorted(read("kind", "get", "nodes", "--name", CLUSTER).split())


def workers() -> list[str]:
    """Those that pods run on."""
    return [node for node in nodes() if "control-plane" not in node]


def registry() -> None:
    """A registry beside the nodes, reached as localhost:PORT from here and from them.

    Pushing and pulling move only the layers that changed; ``kind load`` would write whole images to every node.
    """
    state = read("docker", "ps", "--no-trunc", "-f", f"name=^{REGISTRY_CONTAINER}$", "--format", "{{.Image}}")
    if state != REGISTRY_IMAGE or not _registry_answers():
        run("docker", "rm", "-f", REGISTRY_CONTAINER)
        if _port_taken():
            raise StepError(f"port {REGISTRY_PORT} is in use by something else: set REGISTRY_PORT to another one")
        if not works("docker", "network", "inspect", "kind"):
            run("docker", "network", "create", "kind")  # kind would make it later
        run(
            *("docker", "run", "-d", "--name", REGISTRY_CONTAINER, "--network", "kind"),
            *("-p", f"127.0.0.1:{REGISTRY_PORT}:5000"),
            *("-v", f"{STORAGE}:/var/lib/registry", REGISTRY_IMAGE),
        )
    eventually(_registry_answers, seconds=20, what=f"a registry at {REGISTRY}")


def _registry_answers() -> bool:
    connection = HTTPConnection("127.0.0.1", REGISTRY_PORT, timeout=5)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):  # docker takes calls for a container that cannot be reached, and hangs up
        return False
    finally:
        connection.close()


def _port_taken() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", REGISTRY_PORT)) == 0


def create(*, published: bool) -> None:
    """All nodes or none: a cluster whose making was cut short, or that has changed since, is made anew."""
    SHARED.mkdir(exist_ok=True)
    SHARED.chmod(0o777)
    config = json.dumps(_config(published=published))
    if finished("cluster", _state_of(config)) and _serves():
        return
    forget("cluster")
    run("kind", "delete", "cluster", "--name", CLUSTER)
    stores.fill()
    run(
        *("kind", "create", "cluster", "--name", CLUSTER, "--image", NODE_IMAGE, "--config", "-"),
        *("--kubeconfig", KUBECONFIG),
        given=config,
    )
    finish("cluster", _state_of(config))


def _serves() -> bool:
    """Whether the API server answers; on a busy machine it gets a second chance, and a third."""
    return any(works("kubectl", "get", "--raw", "/readyz", seconds=20) for _ in range(3))


def _state_of(config: str) -> str:
    """What the cluster was made from, which containers it is, and whether they run at the addresses that they had."""
    state = "{{.Id}} {{.State.Running}} " + _ADDRESS
    containers = [read("docker", "inspect", "-f", state, node) for node in nodes()]
    return digest(config, image_id(NODE_IMAGE), *containers)


def _config(*, published: bool) -> dict[str, object]:
    # The same folder in every node is what makes a ReadWriteMany volume of a plain path.
    mounts = [{"hostPath": str(SHARED), "containerPath": SHARED_ON_NODES}]
    patches = ['[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/containerd/certs.d"']
    gates = {}
    if "CAP_SYS_RESOURCE" in missing_capabilities():  # then no process may lower its oom_score_adj, or set rlimits
        patches.append('[plugins."io.containerd.grpc.v1.cri"]\nrestrict_oom_score_adj = true')
        gates = {"KubeletInUserNamespace": True}
    stored = [{"hostPath": folder, "containerPath": stores.IN_NODE} for folder in stores.folders()]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"disableDefaultCNI": not published, "podSubnet": _POD_NETWORK},
        "containerdConfigPatches": patches,
        "featureGates": gates,
        "kubeadmConfigPatches": [_HASTE],
        "nodes": [
            {"role": "control-plane", "extraMounts": mounts},
            *({"role": "worker", "extraMounts": [*mounts, own]} for own in stored),
        ],
    }


def network() -> None:
    """The pod network of a built node image: on each node a bridge-less ``ptp``, between nodes plain routes.

    kind's own network plugin comes as an image. Nothing here enforces a NetworkPolicy.
    """
    names = [f"node/{node}" for node in nodes()]
    run("kubectl", "wait", *names, "--for=jsonpath={.spec.podCIDR}", "--timeout=60s")
    pods = dict(line.split() for line in read("kubectl", "get", *names, "-o", f"jsonpath={_SUBNETS}").splitlines())
    addresses = {node: read("docker", "inspect", "-f", _ADDRESS, node) for node in pods}
    for node, own in pods.items():
        routes = [f"ip route replace {pods[other]} via {addresses[other]}" for other in pods if other != node]
        script = _NETWORK.format(own=own, all=_POD_NETWORK, plugins=_plugins(own), routes="\n".join(routes))
        run("docker", "exec", "-i", node, "bash", "-eux", given=script)


# A pod reaches what is outside the cluster under its node's address. The file appears whole: containerd watches it.
_NETWORK: Final = """
{routes}
masquerade='POSTROUTING -s {own} ! -d {all} -j MASQUERADE'
iptables -t nat -C $masquerade || iptables -t nat -A $masquerade
mkdir -p /etc/cni/net.d
cat > /etc/cni/net.d/10-kitctl.new <<'JSON'
{plugins}
JSON
mv /etc/cni/net.d/10-kitctl.new /etc/cni/net.d/10-kitctl.conflist
"""


def _plugins(subnet: str) -> str:
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "routes": [{"dst": "0.0.0.0/0"}],
        "ranges": [[{"subnet": subnet}]],
    }
    plugins = [
        {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.3.1", "name": "pods", "plugins": plugins})


def nodes_use_registry() -> None:
    """What localhost:PORT means to the nodes; an image without a registry in its name is looked for there first."""
    host = f'[host."http://{REGISTRY_CONTAINER}:5000"]\n'
    for node, name in product(nodes(), (REGISTRY, "docker.io")):
        folder = f"/etc/containerd/certs.d/{name}"
        run("docker", "exec", "-i", node, "sh", "-ec", f"mkdir -p {folder}; cat > {folder}/hosts.toml", given=host)


def nodes_forget(image: str) -> None:
    """Have the nodes pull an image anew that they know by a name without a registry."""
    for node in nodes():
        run("docker", "exec", node, "ctr", "--namespace=k8s.io", "images", "rm", f"docker.io/{image}")


def nodes_pull(image: str) -> None:
    """Have the workers pull an image, so that no pod has to wait for it."""
    for node in workers():
        pull = ("ctr", "--namespace=k8s.io", "images", "pull", "--hosts-dir=/etc/containerd/certs.d", pushed(image))
        run("docker", "exec", node, *pull)


def fake_gpus() -> None:
    """Pods that ask for GPUs get scheduled; no device appears in them.

    The kubelet keeps extended resources that somebody else wrote into its node's status.
    """
    gpus = {"nvidia.com/gpu": str(FAKE_GPUS)}
    patch = json.dumps({"status": {"capacity": gpus, "allocatable": gpus}})
    for node in workers():
        run("kubectl", "patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)


def ready() -> None:
    """Wait for nodes and DNS."""
    own = [f"node/{node}" for node in nodes()]  # a killed test may have left others, which are only simulated
    run("kubectl", "wait", *own, "--for=condition=Ready", "--timeout=120s")
    run("kubectl", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")


def delete() -> None:
    """Delete the nodes, what pods' volumes held, and the registry; keep what was built, pushed and pulled."""
    forget("cluster")
    if (STATE / "bin" / "kind").exists() and works("docker", "info"):
        for node in nodes()[:1]:  # what pods wrote is not ours to delete from here, unless we are root
            works("docker", "exec", node, "find", SHARED_ON_NODES, "-mindepth", "1", "-delete", seconds=60)
        run("kind", "delete", "cluster", "--name", CLUSTER, "--kubeconfig", KUBECONFIG)
        run("docker", "rm", "-f", REGISTRY_CONTAINER)
    KUBECONFIG.unlink(missing_ok=True)
    run("rm", "-rf", SHARED)
