"""Situations on a cluster in which a job is refused, or its pods do not start."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, Situation

TRAIN: Final = DDP + "for i in range(9999):\n    step()\n"
_MISSING_CONFIG: Final = """
volumes:
- {mountPath: /settings, configMap: nocm}
"""
_ZONE: Final = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAMESPACE}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: manual
  claimRef: {namespace: NAMESPACE, name: datasets}
  local: {path: /tmp}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [zone-b]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: datasets}
spec: {accessModes: [ReadWriteMany], storageClassName: manual, resources: {requests: {storage: 1Gi}}}
"""
_NO_PROVISIONER: Final = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: NAMESPACE}
provisioner: csi.example.com
volumeBindingMode: Immediate
"""
_WEBHOOK: Final = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAMESPACE}
webhooks:
- name: policy.example.com
  clientConfig: {service: {namespace: NAMESPACE, name: gatekeeper, path: /v1, port: 443}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 3
"""
_ON: Final = "kubernetes.io/hostname="
_CRASHES: Final = """
pod:
  sidecars:
  - {name: proxy, image: IMAGE, command: [sh, -c, 'echo "proxy: no config at /etc/proxy.conf" >&2; exit 1']}
"""
_INIT: Final = """
pod:
  initContainers:
  - name: fetch-data
    image: IMAGE
    command:
    - python3
    - -c
    - "import sys; sys.exit('fatal: repository https://git.example.com/data.git not found')"
"""

_CLAIM: Final = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: datasets, finalizers: [example.com/backup]}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
"""
_MEMORY: Final = """
pod:
  initContainers:
  - name: fetch-data
    image: IMAGE
    command: [python3, -c, "[b'x' * 2**20 for _ in range(256)]"]
    resources: {limits: {memory: 48Mi}}
"""


def pending(name: str, **more: object) -> Situation:
    """A situation of a script that trains once it can."""
    return Situation(**({"name": name, "script": TRAIN, "on": "cluster"} | more))  # type: ignore[arg-type]


CLUSTER_PENDING: Final = (
    pending(
        "image that is not there",
        options=("--image", "localhost:5001/kitctl/nosuch:1"),
        cause="no such image or tag|does not reach the image's registry",  # the machines try two addresses
        fix="image|registry",
    ),
    pending(
        "name of an image that is none",
        options=("--image", "Registry.example.com/My Image", "--no-checks"),
        cause="[Ii]mage",
        fix="image",
    ),
    pending(
        "secret that is not there",
        options=("--secret", "HF_TOKEN=hub/token", "--no-checks"),
        cause="the secret hub, which a variable of the job names, does not exist",
        fix="create it",
    ),
    pending(
        "key that its secret lacks",
        options=("--secret", "HF_TOKEN=hub/token"),
        objects="{apiVersion: v1, kind: Secret, metadata: {name: hub}, stringData: {HF_TOKEN: x}}",
        cause="the Secret hub, which a variable of the job names, has no key token",
        fix="kubectl describe Secret hub",
        first=(True, False),
    ),
    pending(
        "configmap of a volume is missing",
        spec=_MISSING_CONFIG,
        options=("--no-checks",),
        cause="the configmap nocm, which a volume of the job names, does not exist",
        fix="create it",
    ),
    pending(
        "quota of the namespace",
        objects="{apiVersion: v1, kind: ResourceQuota, metadata: {name: small}, spec: {hard: {pods: '1'}}}",
        options=("--no-checks",),
        cause="quota small",
        fix="kubectl describe quota small|fewer|raise",
    ),
    pending(
        "taint that is not tolerated",
        options=("--node-selector", "node-role.kubernetes.io/control-plane=", "--no-checks"),
        cause="with a taint that the job does not tolerate",
        fix="tolerations",
    ),
    pending(
        "no machine has the label",
        options=("--node-selector", "example.com/pool=gpu", "--no-checks"),
        cause="no machine has the labels of scheduling.nodeSelector",
        fix="kubectl get nodes --show-labels|--node-selector|label",
    ),
    pending(
        "gpus that no machine has free",
        options=("--gpus-per-node", "64", "--no-checks"),
        cause="no machine has enough free nvidia.com/gpu",
        fix="ask for less",
    ),
    pending(
        "more memory than a machine has",
        options=("--memory", "9000Gi", "--no-checks"),
        cause="no machine has enough free memory",
        fix="ask for less",
    ),
    pending(
        "limit range of the namespace",
        objects="{apiVersion: v1, kind: LimitRange, metadata: {name: small}, "
        "spec: {limits: [{type: Container, max: {memory: 256Mi}}]}}",
        options=("--no-checks",),
        cause="256Mi|maximum memory|limit range|LimitRange",
        fix="limitrange",
        first=(False, False),
    ),
    pending(
        "class of a claim without a driver",
        objects=_NO_PROVISIONER,
        options=("--storage-class", "NAMESPACE"),
        after="kubectl delete storageclass NAMESPACE",
        cause="the claim .* has no volume: nothing has made one, which csi.example.com should do",
        fix="--storage-class",
        first=(True, False),
    ),
    pending(
        "class of a claim that is not there",
        options=("--storage-class", "nosuch", "--no-checks"),
        cause="has no volume.*nosuch.* not found",
        fix="--storage-class",
    ),
    pending(
        "volume of another zone",
        objects=_ZONE,
        options=("--volume", "datasets:/data"),
        after="kubectl delete pv NAMESPACE --wait=false",
        cause="a volume of the job is in a zone, or on a machine, where its pods may not run",
        fix="kubectl describe pv",
        first=(False, False),
    ),
    pending(
        "claim that is not there",
        options=("--volume", "nodata:/data", "--no-checks"),
        cause="the claim nodata does not exist",
        fix="create it",
    ),
    pending(
        "webhook that does not answer",
        objects=_WEBHOOK,
        after="kubectl delete validatingwebhookconfiguration NAMESPACE",
        cause='failed calling webhook "policy.example.com"',
        fix="kubectl get validatingwebhookconfigurations",
        first=(True, False),
    ),
    pending(
        "namespace with a stricter security level",
        objects="{apiVersion: v1, kind: Namespace, "
        "metadata: {name: NAMESPACE, labels: {pod-security.kubernetes.io/enforce: restricted}}}",
        options=("--set", "security.profile=none"),
        cause="violates PodSecurity",
        fix="profile|Pod Security",
        first=(True, True),
    ),
    pending(
        "template of a claim that is not there",
        spec="pod: {resourceClaims: [{name: gpu, template: one-gpu}]}",
        options=("--no-checks",),
        cause="the ResourceClaimTemplate one-gpu does not exist",
        fix="create it",
        first=(False, False),
    ),
    pending(
        "scheduler that is not there",
        spec="scheduling: {scheduler: gpu-binpack}",
        options=("--no-checks",),
        cause="the scheduler gpu-binpack has said nothing of the pod",
        fix="scheduling.scheduler",
        first=(False, False),
    ),
    pending(
        "machine that the pods name",
        spec="pod: {spec: {nodeName: gpu-box-7}}",
        cause="pod.spec.nodeName: binds all pods to one machine",
        fix="scheduling.nodeSelector: {kubernetes.io/hostname: gpu-box-7}",
        first=(False, False),
    ),
    pending(
        "claim that is being deleted",
        objects=_CLAIM,
        prepare="sleep 1; kubectl -n NAMESPACE delete pvc datasets --wait=false",
        options=("--volume", "datasets:/data", "--no-checks"),
        after='kubectl -n NAMESPACE patch pvc datasets --type merge -p \'{"metadata": {"finalizers": []}}\'',
        cause="the claim datasets is being deleted",
        fix="--claim",
        first=(True, False),
    ),
    pending(
        "init container without enough memory",
        spec=_MEMORY,
        cause="init container fetch-data was killed for lack of memory",
        fix="resources.limits.memory of fetch-data",
        first=(False, False),
    ),
    pending(
        "service account that is not there",
        spec="security: {serviceAccount: trainer-sa}",
        cause='serviceaccount "trainer-sa" not found',
        fix="create it",
        first=(True, True),
    ),
    pending(
        "priority class that is not there",
        options=("--priority", "nosuch"),
        cause="nosuch",
        fix="kubectl get priorityclass|--priority|create",
    ),
    pending(
        "root as the user of the ranks",
        options=("--set", "security.runAsUser=0"),
        cause="security.runAsUser: 0 is not allowed",
        fix="at least 1",
        first=(True, True),
    ),
    pending(
        "user without rights",
        objects="{apiVersion: v1, kind: ServiceAccount, metadata: {name: nobody}}",
        account="nobody",
        cause="may not|[Ff]orbidden|not allowed",
        fix="administrator|right|role",
    ),
    pending(
        "init container that fails",
        spec=_INIT,
        cause=r"init container fetch-data failed \(exit code 1\)",
        fix="kubectl logs .* -c fetch-data",
        first=(False, False),
    ),
    pending(
        "machine that is cordoned",
        prepare="kubectl cordon kitctl-worker3",
        options=("--node-selector", f"{_ON}kitctl-worker3", "--no-checks"),
        after="kubectl uncordon kitctl-worker3",
        cause="no machine has the labels of scheduling.nodeSelector, but for those that are cordoned",
        fix="kubectl uncordon",
    ),
    pending(
        "machine with a taint of another team",
        prepare="kubectl taint node kitctl-worker2 corpus.example.com/team=NAMESPACE:NoSchedule",
        options=("--node-selector", f"{_ON}kitctl-worker2", "--no-checks"),
        after="kubectl taint node kitctl-worker2 corpus.example.com/team-",
        cause="no machine has the labels of scheduling.nodeSelector, or only one with a taint",
        fix="tolerations",
    ),
    pending(
        "sidecar that fails",
        spec=_CRASHES,
        cause=r"sidecar proxy has ended \d+ times? \(exit code 1\): proxy: no config at /etc/proxy.conf",
        fix="kubectl logs .* -c proxy.*pod.sidecars",
        first=(False, False),
    ),
    pending(
        "another DNS than that of the cluster",
        spec="pod: {spec: {dnsPolicy: Default}}",
        cause="node 1 cannot resolve node 0's name run-0",
        fix="leave out dnsPolicy",
        first=(False, False),
    ),
)
