"""Situations on a cluster in which pods run, and ranks fail or are taken away."""

from __future__ import annotations

from typing import Final

from tests.corpus.cluster_pending import TRAIN, pending
from tests.corpus.situation import GROUP, ONCE

_POD: Final = "kubectl -n NAMESPACE get pods -l batch.kubernetes.io/job-completion-index=1 -o name | head -1"
_HOARD: Final = """
class Items(torch.utils.data.Dataset):
    kept = []
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        self.kept.append(bytearray(b"x" * (8 << 20)))
        return torch.zeros(4)
for batch in torch.utils.data.DataLoader(Items(), batch_size=8, num_workers=1, multiprocessing_context="fork"):
    dist.all_reduce(batch)
"""
_IMAGES: Final = """
class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return torch.randn(3, 224, 224)
for batch in torch.utils.data.DataLoader(Images(), batch_size=32, num_workers=2, multiprocessing_context="fork"):
    total = batch.sum()
    dist.all_reduce(total)
"""
_PRIORITIES: Final = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: NAMESPACE-low}
value: -10
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: NAMESPACE-high}
value: -5
"""
_URGENT: Final = """kubectl -n NAMESPACE apply -f - <<'END'
apiVersion: v1
kind: Pod
metadata: {name: urgent}
spec:
  priorityClassName: NAMESPACE-high
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: IMAGE, command: [sleep, '300'], resources: {limits: {example.com/corpus: '2'}}}
END
"""
_ENDS: Final = "pod: {sidecars: [{name: proxy, image: IMAGE, command: [sleep, '3']}]}"
_STAYS: Final = """
pod: {sidecars: [{name: proxy, image: IMAGE, command: [sh, -c, 'trap : TERM; while :; do sleep 1; done']}]}
"""
# A machine that is gone for its own pod alone: others run on it, too.
_GONE: Final = """set -- $(kubectl -n NAMESPACE get pods -l batch.kubernetes.io/job-completion-index=1 \\
    -o jsonpath='{.items[0].spec.nodeName} {.items[0].status.podIP}')
docker exec $1 sh -c "systemctl stop kubelet; iptables -N NAMESPACE; iptables -A NAMESPACE -s $2 -j DROP
    iptables -A NAMESPACE -d $2 -j DROP; iptables -I FORWARD -j NAMESPACE"
"""
_BACK: Final = """for machine in kitctl-worker kitctl-worker2 kitctl-worker3; do
    docker exec $machine sh -c "systemctl start kubelet
        iptables -D FORWARD -j NAMESPACE && iptables -F NAMESPACE && iptables -X NAMESPACE"
done 2>/dev/null"""
_STATUS: Final = "kubectl patch node kitctl-worker --subresource=status --type=json -p"
_CAPACITY: Final = "/status/capacity/example.com~1corpus"
_EVICTION: Final = (
    '{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "\'$pod\'", "namespace": "NAMESPACE"}}'
)

CLUSTER_RUNNING: Final = (
    pending(
        "rank that uses more memory than its pod has",
        script=GROUP
        + "dist.barrier()\nif rank == 1:\n    hoard = [b'x' * (64 << 20) for _ in range(99)]\ndist.barrier()",
        options=("--memory", "700Mi", *ONCE),
        cause="out of memory|OOMKilled",
        fix="memory",
    ),
    pending(
        "loader whose workers keep all they read",
        script=GROUP + _HOARD,
        options=("--memory", "900Mi"),
        cause="out of memory|OOMKilled|killed by signal: Killed",
        fix="memory",
        first=(False, False),
    ),
    pending(
        "loader in a small shared memory",
        script=GROUP + _IMAGES,
        options=("--shm", "8Mi"),
        cause="Bus error|shared memory",
        fix="sharedMemory|--shm",
        first=(False, False),
    ),
    pending(
        "file system that is read only",
        script=GROUP + "os.makedirs('/opt/cache/datasets', exist_ok=True)",
        cause="Read-only file system: '/opt/cache'",
        fix="readOnlyRoot|snapshot folder",
        first=(True, True),
    ),
    pending(
        "host name that the cluster does not know",
        script="import urllib.request\nurllib.request.urlopen('https://data.example.invalid/config.json', timeout=20)",
        cause="Name or service not known|name resolution",
        fix="DNS|proxy",
        first=(True, True),
    ),
    pending(
        "deadline of the job",
        options=("--deadline", "25s"),
        cause="DeadlineExceeded|deadline",
        fix="--deadline",
    ),
    pending(
        "pod that is evicted",
        later=f"pod=$({_POD}); pod=${{pod#pod/}}; echo '{_EVICTION}' | "
        "kubectl create --raw /api/v1/namespaces/NAMESPACE/pods/$pod/eviction -f -",
        cause="a machine gives up the job's pod",
        fix="nothing: its node is replaced",
    ),
    pending(
        "pod that a user deletes",
        later=f"kubectl -n NAMESPACE delete --wait=false $({_POD})",
        cause="a pod of the job is being deleted",
        fix="nothing: its node is replaced",
        first=(True, False),
    ),
    pending(
        "pod that is preempted",
        objects=_PRIORITIES,
        spec="resources: {limits: {example.com/corpus: '1'}}\nscheduling: {priorityClass: NAMESPACE-low}",
        prepare=f"""{_STATUS} '[{{"op": "add", "path": "{_CAPACITY}", "value": "2"}}]'
kubectl wait node/kitctl-worker --for='jsonpath={{.status.allocatable.example\\.com/corpus}}=2' --timeout=90s""",
        later=_URGENT,
        after=f"""{_STATUS} '[{{"op": "remove", "path": "{_CAPACITY}"}}]'
kubectl delete priorityclass NAMESPACE-low NAMESPACE-high""",
        cause="a pod of higher priority takes the place of one of the job's",
        fix="--priority",
        first=(False, False),
    ),
    pending(
        "job that a finalizer keeps",
        later="""kubectl -n NAMESPACE patch job run --type=merge -p '{"metadata": {"finalizers": ["example.com/hold"]}}'
kubectl -n NAMESPACE delete job run --wait=false --cascade=foreground""",
        after="""kubectl -n NAMESPACE patch job run --type=merge -p '{"metadata": {"finalizers": null}}'""",
        cause="the job is being deleted, and its finalizer example.com/hold keeps it",
        fix="finalizers: null",
        first=(False, False),
    ),
    pending(
        "node that stands still on a cluster",
        script=TRAIN + "    if i == 60 and rank == 1:\n        time.sleep(600)\n",
        cause="no step for .*: rank 1 sleeps.* at train.py.*, rank 0 waits in all_reduce of its backward pass",
    ),
    pending(
        "machine that is lost",
        later=_GONE,
        after=_BACK,
        cause=r"node 1, pod \S+ is lost: its machine has not answered for 3 s",
        fix="kubectl get pod run-1-.* -o wide",
        first=(False, False),
    ),
    pending(
        "machine of node 0 that is lost",
        later=_GONE.replace("completion-index=1", "completion-index=0"),
        after=_BACK,
        cause="node 0 is lost: its machine does not answer",
        fix="HOST of node 0 in kitctl status",
        first=(False, False),
    ),
    pending(
        "sidecar that ends again and again",
        spec=_ENDS,
        cause=r"sidecar proxy has ended \d+ times \(exit code 0\)",
        fix="pod.sidecars",
    ),
    pending(
        "sidecar that outlives the ranks",
        script=GROUP + "dist.barrier()\ntime.sleep(5)\n",
        spec=_STAYS,
        cause=r"the ranks have ended, and sidecar proxy has not: it is killed \d+ s after them",
        fix="nothing: the job ends then",
        first=(False, False),
    ),
)
