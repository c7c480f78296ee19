"""Names, folders, sizes and pinned versions; variables that are read from the environment here may be set there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kitjob import __version__
from kitjob.names import DEFAULT_IMAGE

HERE: Final = Path(__file__).parent
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

# All state except for the machine's Debian packages and Go's own caches.
STATE: Final = Path(os.environ.get("KIT_CLUSTER_STATE") or _CACHE / "kitctl-cluster")
BIN: Final = STATE / "bin"
KUBECONFIG: Final = STATE / "kubeconfig"  # never the user's own
SHARED: Final = STATE / "shared"  # contents of ReadWriteMany volumes; mounted into every node
STORAGE: Final = STATE / "registry"  # pushed images

CLUSTER: Final = "kitctl"
WORKERS: Final = int(os.environ.get("CLUSTER_WORKERS", "3"))
KUEUE_LABEL: Final = "kitctl.test/kueue"  # of the namespaces whose jobs Kueue manages: also in manifests/kueue.yaml
SECOND_DOMAIN: Final = "kitctl.test"  # of the cluster's services, besides cluster.local
FAKE_GPUS: Final = int(os.environ.get("FAKE_GPUS", "4"))  # nvidia.com/gpu of each worker

REGISTRY_PORT: Final = int(os.environ.get("REGISTRY_PORT", "5001"))
REGISTRY: Final = f"localhost:{REGISTRY_PORT}"  # the same name on this machine and on the nodes
REGISTRY_CONTAINER: Final = "kitctl-registry"
TORCH_IMAGE: Final = f"{REGISTRY}/kitctl/torch-cpu:sid"  # the BASE_IMAGE of the CPU trainer image
PUBLIC_IMAGE: Final = f"{REGISTRY}/{DEFAULT_IMAGE}"  # the same: on the nodes, it stands for that of jobs that name none
# Several checkouts that share a cluster each set another name.
TRAINER_NAME: Final = f"kitctl/trainer:{__version__}"  # what Dockerfile makes
TRAINER_IMAGE: Final = f"{REGISTRY}/{os.environ.get('TRAINER_IMAGE_NAME') or TRAINER_NAME}"

# A published node image. If set, no image is built: CI's matrix over Kubernetes versions uses this.
KIND_IMAGE: Final = os.environ.get("KIND_IMAGE", "")
# The default of the pinned kind.
PUBLISHED_NODE: Final = "kindest/node:v1.34.0@sha256:7416a61b42b1662ca6ca89f02028ac133a309a2a30ba309614e8ec94d976dc5a"
NODE_IMAGE: Final = "kitctl/node:built"

KUBERNETES: Final = "v1.34.4"  # not 1.35: its kubelet refuses cgroup v1, which some machines have
ETCD: Final = "v3.6.5"  # etcd and CoreDNS as kubeadm expects for that Kubernetes
COREDNS: Final = "v1.12.1"
KIND: Final = "v0.30.0"
HELM: Final = "v3.22.0"
TRAINING_OPERATOR: Final = "v1.9.3"
KUEUE: Final = "v0.15.0"
SCHEDULER_PLUGINS: Final = "v0.34.1-devel"  # its PodGroup's definition
JOBSET: Final = "v0.12.0"
TRAINER: Final = "v2.2.0"  # Kubeflow's, whose kind is TrainJob
ACTIONLINT: Final = "v1.7.12"
VERSITYGW: Final = "v1.8.0"  # an S3 server, for the tests of mirrors of snapshots
STERN: Final = "v1.33.0"  # only `make bench-logs` compares with it

# Environment of every command. It selects this machine's docker daemon, and unless one is chosen no BuildKit: Debian
# has no buildx.
ENVIRON: Final = {
    "DOCKER_BUILDKIT": "0",
    **{name: value for name, value in os.environ.items() if name not in {"DOCKER_HOST", "DOCKER_CONTEXT"}},
    "KUBECONFIG": str(KUBECONFIG),
    "PATH": f"{BIN}:{os.environ['PATH']}:/usr/local/go/bin:/usr/sbin",
}
# Of commands that end within a second: collecting their garbage takes a sixth of their time.
SHORT_COMMANDS: Final = {**ENVIRON, "GOGC": "off"}
