"""The cluster itself: kind's nodes, the pod network between them, the registry next to them, simulated GPUs."""

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

SHARED_ON_NODES: Final = "/kitctl-shared"  # also in volumes.sh
_POD_NETWORK: Final = "10.244.0.0/16"  # kind's default
# Controllers send at most 20 requests per second by default, and several tests wait for them. With a single control
# plane, leader election is only load. This cluster's state need not survive a power cut, so etcd skips fsync.
_FAST_CONFIG: Final = """
kind: ClusterConfiguration
controllerManager: {extraArgs: {kube-api-qps: "200", kube-api-burst: "400", leader-elect: "false"}}
scheduler: {extraArgs: {leader-elect: "false"}}
etcd: {local: {extraArgs: {unsafe-no-fsync: "true"}}}
"""
_SUBNETS: Final = '{range .items[*]}{.metadata.name} {.spec.podCIDR}{"\\n"}{end}'
_ADDRESS: Final = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"


def nodes() -> list[str]:
    """The containers of the cluster's nodes."""
    return sorted(read("kind", "get", "nodes", "--name", CLUSTER).split())


def workers() -> list[str]:
    """The nodes that pods run on."""
    return [node for node in nodes() if "control-plane" not in node]


def registry() -> None:
    """Start a registry next to the nodes, reachable as localhost:PORT from here and from them.

    Pushing and pulling transfer only changed layers; ``kind load`` would write whole images to every node.
    """
    state = read("docker", "ps", "--no-trunc", "-f", f"name=^{REGISTRY_CONTAINER}$", "--format", "{{.Image}}")
    if state != REGISTRY_IMAGE or not _registry_answers():
        run("docker", "rm", "-f", REGISTRY_CONTAINER)
        if _port_taken():
            raise StepError(f"port {REGISTRY_PORT} is in use by something else: set REGISTRY_PORT to another one")
        if not works("docker", "network", "inspect", "kind"):
            run("docker", "network", "create", "kind")  # kind would create it later
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
    except (OSError, HTTPException):  # docker accepts connections for an unreachable container, and closes them
        return False
    finally:
        connection.close()


def _port_taken() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", REGISTRY_PORT)) == 0


def pause() -> None:
    """Freeze the nodes, which compute even without pods."""
    run("docker", "pause", *nodes())


def resume() -> None:
    """Let paused nodes go on."""
    paused = read("docker", "ps", "-q", "-f", "status=paused", "-f", f"label=io.x-k8s.kind.cluster={CLUSTER}").split()
    if paused:
        run("docker", "unpause", *paused)


def create(*, published: bool) -> None:
    """Create the cluster; one whose creation was interrupted, or that has changed since, is created again."""
    resume()
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
    """Whether the API server answers, with two retries for a busy machine."""
    return any(works("kubectl", "get", "--raw", "/readyz", seconds=20) for _ in range(3))


def _state_of(config: str) -> str:
    """A digest of the cluster's configuration and image, and of its containers with their state and addresses."""
    state = "{{.Id}} {{.State.Running}} " + _ADDRESS
    containers = [read("docker", "inspect", "-f", state, node) for node in nodes()]
    return digest(config, image_id(NODE_IMAGE), *containers)


def _config(*, published: bool) -> dict[str, object]:
    # The same folder in every node makes a plain path a ReadWriteMany volume.
    mounts = [{"hostPath": str(SHARED), "containerPath": SHARED_ON_NODES}]
    patches = ['[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/containerd/certs.d"']
    gates = {}
    if (
        "CAP_SYS_RESOURCE" in missing_capabilities()
    ):  # without it, no process may lower its oom_score_adj or set rlimits
        patches.append('[plugins."io.containerd.grpc.v1.cri"]\nrestrict_oom_score_adj = true')
        gates = {"KubeletInUserNamespace": True}
    stored = [{"hostPath": folder, "containerPath": stores.IN_NODE} for folder in stores.folders()]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"disableDefaultCNI": not published, "podSubnet": _POD_NETWORK},
        "containerdConfigPatches": patches,
        "featureGates": gates,
        "kubeadmConfigPatches": [_FAST_CONFIG],
        "nodes": [
            {"role": "control-plane", "extraMounts": mounts},
            *({"role": "worker", "extraMounts": [*mounts, own]} for own in stored),
        ],
    }


def network() -> None:
    """The pod network of a built node image: ``ptp`` on each node, and plain routes between nodes.

    kind's own network plugin is a published image. Nothing here enforces a NetworkPolicy.
    """
    names = [f"node/{node}" for node in nodes()]
    run("kubectl", "wait", *names, "--for=jsonpath={.spec.podCIDR}", "--timeout=60s")
    pods = dict(line.split() for line in read("kubectl", "get", *names, "-o", f"jsonpath={_SUBNETS}").splitlines())
    addresses = {node: read("docker", "inspect", "-f", _ADDRESS, node) for node in pods}
    for node, own in pods.items():
        routes = [f"ip route replace {pods[other]} via {addresses[other]}" for other in pods if other != node]
        # What is sent to a pod that is gone must fail: another network may have its address, and answer.
        routes += [f"ip route replace unreachable {own}"]
        script = _NETWORK.format(own=own, all=_POD_NETWORK, plugins=_plugins(own), routes="\n".join(routes))
        run("docker", "exec", "-i", node, "bash", "-eux", given=script)


# Pods reach hosts outside the cluster with their node's address. The file is moved into place: containerd watches it.
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
    plugin = {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": ipam}  # no host ports: each pod would start one more
    return json.dumps({"cniVersion": "0.3.1", "name": "pods", "plugins": [plugin]})


def nodes_use_registry() -> None:
    """Have the nodes resolve localhost:PORT to the registry, and try it first for images without a registry name."""
    host = f'[host."http://{REGISTRY_CONTAINER}:5000"]\n'
    for node, name in product(nodes(), (REGISTRY, "docker.io")):
        folder = f"/etc/containerd/certs.d/{name}"
        run("docker", "exec", "-i", node, "sh", "-ec", f"mkdir -p {folder}; cat > {folder}/hosts.toml", given=host)


def nodes_remove_image(image: str) -> None:
    """Remove an image without a registry name from the nodes, so that they pull it again."""
    for node in nodes():
        run("docker", "exec", node, "ctr", "--namespace=k8s.io", "images", "rm", f"docker.io/{image}")


def nodes_pull(image: str) -> None:
    """Have the workers pull an image, so that pods need not wait for it."""
    for node in workers():
        pull = ("ctr", "--namespace=k8s.io", "images", "pull", "--hosts-dir=/etc/containerd/certs.d", pushed(image))
        run("docker", "exec", node, *pull)


def nodes_read() -> None:
    """Let nodes read what any pod refers to, not only their own pods.

    The API server may learn which node a pod is on after that node's kubelet does. It then refuses it the pod's claims,
    and kubelet tries again after ten seconds: without this, one job of six took these.
    """
    binding = ("clusterrolebinding", "nodes-read", "--clusterrole=system:node", "--group=system:nodes")
    if not works("kubectl", "get", *binding[:2]):
        run("kubectl", "create", *binding)


def fake_gpus() -> None:
    """Add GPUs to the workers' status, so that pods that request them are scheduled; they get no device.

    The kubelet keeps extended resources that others write into its node's status.
    """
    gpus = {"nvidia.com/gpu": str(FAKE_GPUS)}
    patch = json.dumps({"status": {"capacity": gpus, "allocatable": gpus}})
    for node in workers():
        run("kubectl", "patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)


def ready() -> None:
    """Wait for nodes and DNS."""
    own = [f"node/{node}" for node in nodes()]  # a killed test may have left simulated ones
    run("kubectl", "wait", *own, "--for=condition=Ready", "--timeout=120s")
    run("kubectl", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")


def delete() -> None:
    """Delete the nodes, what pods' volumes held, and the registry; keep what was built, pushed and pulled."""
    forget("cluster")
    if (STATE / "bin" / "kind").exists() and works("docker", "info"):
        resume()
        for node in nodes()[:1]:  # without root, files of pods can only be deleted from inside
            works("docker", "exec", node, "find", SHARED_ON_NODES, "-mindepth", "1", "-delete", seconds=60)
        run("kind", "delete", "cluster", "--name", CLUSTER, "--kubeconfig", KUBECONFIG)
        run("docker", "rm", "-f", REGISTRY_CONTAINER)
    KUBECONFIG.unlink(missing_ok=True)
    run("rm", "-rf", SHARED)
