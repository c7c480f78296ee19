"""Situations of a cluster that were drawn by lot from causes of public threads."""

from __future__ import annotations

from typing import Final

from tests.corpus.cluster_pending import TRAIN, pending
from tests.corpus.situation import DDP, GROUP

_BESIDE: Final = """
apiVersion: v1
kind: Pod
metadata: {name: notebook}
spec:
  terminationGracePeriodSeconds: 1
"""
_PORT: Final = (
    _BESIDE
    + """
  nodeSelector: {kubernetes.io/hostname: kitctl-worker3}
  containers:
  - {name: main, image: IMAGE, command: [sleep, '600'], ports: [{containerPort: 9500, hostPort: 9500}]}
"""
)
_TAKES_PORT: Final = """
scheduling: {nodeSelector: {kubernetes.io/hostname: kitctl-worker3}}
pod: {spec: {containers: [{name: pytorch, ports: [{name: profiler, containerPort: 9500, hostPort: 9500}]}]}}
"""
_AFFINITY: Final = """
pod:
  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {labelSelector: {matchLabels: {app: feature-cache}}, topologyKey: kubernetes.io/hostname}
"""
_ONE_POD: Final = (
    """
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAMESPACE}
spec:
  storageClassName: manual
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOncePod]
  hostPath: {path: /tmp/NAMESPACE, type: DirectoryOrCreate}
  claimRef: {name: data, namespace: NAMESPACE}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: manual, accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}}
---
"""
    + _BESIDE
    + """
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
  containers:
  - {name: main, image: IMAGE, command: [sleep, '600'], volumeMounts: [{name: data, mountPath: /data}]}
"""
)
_READY: Final = "kubectl -n NAMESPACE wait pod/notebook --for=condition=Ready --timeout=60s"
_NFS: Final = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAMESPACE}
spec:
  storageClassName: manual
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  nfs: {server: 127.0.0.1, path: /export/team}
  claimRef: {name: data, namespace: NAMESPACE}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: manual, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
"""
_BY_HAND: Final = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: fast-nvme, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
"""
_QUOTA: Final = (
    """
apiVersion: v1
kind: ResourceQuota
metadata: {name: team}
spec: {hard: {requests.memory: 2Gi}}
---
"""
    + _BESIDE
    + """
  containers:
  - {name: main, image: IMAGE, command: [sleep, '600'], resources: {requests: {memory: 1200Mi}}}
"""
)
_NO_IMAGE: Final = """
pod: {sidecars: [{name: logship, image: 'localhost:5001/tools/logship:2.4', command: [/logship]}]}
"""
_PROBED: Final = """
pod:
  sidecars:
  - name: proxy
    image: IMAGE
    command: [sleep, '900']
    startupProbe: {exec: {command: [sh, -c, 'echo no upstream; exit 1']}, periodSeconds: 4, failureThreshold: 60}
"""
_KILLED: Final = """
pod:
  sidecars:
  - name: proxy
    image: IMAGE
    command: [sh, -c, 'trap "exit 143" TERM; while :; do sleep 1; done']
    startupProbe: {exec: {command: [sh, -c, 'echo no upstream; exit 1']}, periodSeconds: 4, failureThreshold: 2}
"""
_FILLS: Final = (
    GROUP
    + """
if rank == 1:
    with open("/tmp/shard.cache", "wb") as file:
        for _ in range(200):
            file.write(os.urandom(1 << 20))
            file.flush()
while True:
    dist.all_reduce(torch.ones(10))
    time.sleep(0.1)
"""
)
_WORDS: Final = (
    "WARNING: CUDA out of memory avoided, ConnectionRefusedError [Errno 111] to wandb, retrying; "
    "Killed workers: 0; No space left on device (cache skipped)"
)
# A pod of the job that is made anew, once something that it needs is gone. It waits for the first one's end, of which
# is told as well.
_ANEW: Final = (
    "kubectl -n NAMESPACE delete --grace-period=1 "
    "$(kubectl -n NAMESPACE get pods -l batch.kubernetes.io/job-completion-index=1 -o name)"
)
_GUARD: Final = """kubectl create -f - <<'END'
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAMESPACE}
webhooks:
- name: guard.example.com
  clientConfig: {service: {namespace: NAMESPACE, name: guard, path: /v, port: 443}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 3
END
sleep 3
"""

CLUSTER_LOT: Final = (
    pending(
        "port of the machine that another pod has",
        objects=_PORT,
        prepare=_READY,
        spec=_TAKES_PORT,
        options=("--no-checks",),
        cause="on all machines that would do another pod has the port that the job takes",
        fix="hostPort",
        first=(False, False),
    ),
    pending(
        "pods that are not there next to which those of the job have to be",
        spec=_AFFINITY,
        cause="no machine has the pods next to which pod.affinity",
        fix="start the pods that it selects",
        first=(False, False),
    ),
    pending(
        "claim for one pod that another one uses",
        objects=_ONE_POD,
        prepare=_READY,
        options=("--volume", "data:/data", "--no-checks"),
        after="kubectl -n NAMESPACE delete pod notebook --wait=false; kubectl delete pv NAMESPACE --wait=false",
        cause="a claim of the job is for one pod alone",
        fix="Used By",
        first=(False, False),
    ),
    pending(
        "image of a sidecar that is not there",
        spec=_NO_IMAGE,
        options=("--no-checks",),
        cause="sidecar logship: the registry.* no such image or tag",
        fix="correct its image in pod.sidecars",
        first=(False, False),
    ),
    pending(
        "startup probe of a sidecar that does not succeed",
        spec=_PROBED,
        cause=r"sidecar proxy runs for \d+ s, and its startup probe has not succeeded",
        fix="startupProbe in pod.sidecars",
        first=(True, True),
    ),
    pending(
        "machines that all have to be different and are too few",
        script=TRAIN,
        options=("--nodes", "4", "--no-checks"),
        spec="scheduling: {spread: require}",
        cause="no further machine fits how the pods have to be spread",
        fix="spread: prefer",
        first=(True, True),
    ),
    pending(
        "image that may not be pulled",
        spec="pod: {spec: {containers: [{name: pytorch, imagePullPolicy: Never}]}}",
        options=("--image", "localhost:5001/kitctl/trainer:nightly", "--no-checks"),
        cause="the image is not on the machine, and imagePullPolicy: Never",
        fix="IfNotPresent",
        first=(True, True),
    ),
    pending(
        "devices that no machine advertises",
        options=("--gpus-per-node", "1"),
        spec="{gpuResource: nvidia.com/mig-1g.10gb, backend: gloo}",
        cause="gpusPerNode: 1, but no node of the cluster has any nvidia.com/mig-1g.10gb",
        fix="name what they have",
        first=(True, False),
    ),
    pending(
        "machine without a client of the server of its volume",
        objects=_NFS,
        options=("--volume", "data:/data", "--no-checks"),
        after="kubectl delete pv NAMESPACE --wait=false",
        cause="the machine has no program, or no module of its kernel, that mounts such a volume",
        fix="nfs-common",
        first=(True, True),
    ),
    pending(
        "claim made by hand with a class that is not there",
        objects=_BY_HAND,
        options=("--volume", "data:/data", "--no-checks"),
        cause='claim data has no volume: .*"fast-nvme" not found',
        fix="make the claim anew",
        first=(True, False),
    ),
    pending(
        "quota that other pods use",
        objects=_QUOTA,
        options=("--no-checks",),
        cause="the namespace's quota team is used up",
        fix="end other jobs",
        first=(True, True),
    ),
    pending(
        "sysctl that the machines do not allow",
        spec="pod: {spec: {securityContext: {sysctls: [{name: net.core.somaxconn, value: '4096'}]}}}",
        cause="its kubelet does not allow the sysctl net.core.somaxconn",
        fix="pod.spec.securityContext.sysctls",
        first=(True, False),
    ),
    pending(
        "limit of processors with which nothing starts",
        spec="resources: {limits: {cpu: 20m}}",
        cause="a node starts slowly: the CPU limit 20m has left it",
        fix="raise resources.limits.cpu",
        first=(False, False),
    ),
    pending(
        "files that outgrow the disk of their pod",
        script=_FILLS,
        spec="resources: {limits: {ephemeral-storage: 60Mi}}",
        cause="ephemeral local storage usage exceeds",
        fix="--volume",
        first=(True, True),
    ),
    pending(
        "service account that is gone",
        later=f"kubectl -n NAMESPACE delete serviceaccount run; sleep 1; {_ANEW}",
        cause="the service account run does not exist",
        fix="create it",
        first=(True, True),
    ),
    pending(
        "service that is gone",
        later=f"kubectl -n NAMESPACE delete service run; sleep 2; {_ANEW}",
        cause="the job's Service run is gone",
        fix="--replace",
        first=(True, True),
    ),
    pending(
        "webhook that stops answering while the job runs",
        later=f"{_GUARD}{_ANEW}",
        after="kubectl delete validatingwebhookconfiguration NAMESPACE",
        cause='failed calling webhook "guard.example.com"',
        fix="kubectl get validatingwebhookconfigurations",
        first=(True, True),
    ),
    pending(
        "security level that is raised while the job runs",
        spec="security: {profile: none}",
        later=f"kubectl label namespace NAMESPACE pod-security.kubernetes.io/enforce=restricted; sleep 1; {_ANEW}",
        cause="violates PodSecurity",
        fix="profile|Pod Security",
        first=(True, False),
    ),
    pending(
        "index of packages that pip ignores",
        files={"requirements.txt": "einops==0.8.0\n"},
        options=("--requirements", "requirements.txt", "--index-url", "http://wheels.example.invalid:8080/simple"),
        cause="pip ignores the index at wheels.example.invalid, which is asked by HTTP",
        fix="PIP_TRUSTED_HOST=wheels.example.invalid",
        first=(True, False),
    ),
    pending(
        "sidecar that is killed before its startup probe succeeds",
        spec=_KILLED,
        cause=r"sidecar proxy has ended \d+ times? \(exit code 143\), and its startup probe has not succeeded",
        fix="the probe's answers",
    ),
    pending(
        "healthy and not ready by its probe",
        script=DDP + "for i in range(300):\n    step()\n",
        spec="pod: {spec: {containers: [{name: pytorch, readinessProbe: {tcpSocket: {port: 9}, periodSeconds: 3}}]}}",
        healthy=True,
        first=(True, True),
    ),
    pending(
        "healthy on a cluster with words of failures",
        script=DDP + f"for i in range(300):\n    step()\n    print({_WORDS!r}, flush=True)\n",
        healthy=True,
        first=(True, True),
    ),
)
