"""Causes and fixes of messages as they were seen: of pods on a cluster, and of ranks on this machine."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kitctl.output.view.why import lines
from kitctl.state.facts import OWN_MEMORY, OWN_VOLUMES
from kitctl.state.phase import JobState, NodeState, Phase
from kitctl.state.why.explain import explain
from kitctl.state.why.rule import LIMIT, brief
from kitctl.state.why.tables import FAMILIES
from kitjob import record
from kitjob.report import (
    AT_THE_SAME_LINE,
    NO_RESTART_HELPS,
    CopiesReport,
    MirrorReport,
    PastFailure,
    Progress,
    RecoveryTimings,
    Standstill,
    Termination,
)

CALLED = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in <module>\n    check()\n'
AUTO = '  File "/x/site-packages/transformers/models/auto/configuration_auto.py", line 7, in f\n    raise\n'
JOB = JobState(
    name="x",
    namespace="default",
    target="kind-kitctl",
    job_kind="IndexedJob",
    phase="Pending",
    reason="",
    node_range="2",
    ready_nodes=0,
    world_size=0,
    restarts=0,
    created=0.0,
    ended=None,
    progress=Progress(),
    failure=None,
    nodes=(),
    snapshots="",
)


def test_what_is_not_mirrored_or_copied_while_a_job_trains_is_told() -> None:
    running = replace(JOB, phase="Running")
    denied = MirrorReport(warning="the credentials may not write (AccessDenied); fix: grant s3:PutObject")
    found = explain(replace(running, mirror=denied), now=0.0)
    assert found.cause == "snapshots are not mirrored now: the credentials may not write (AccessDenied)"
    assert found.fix == "grant s3:PutObject"
    full = CopiesReport(warning="[Errno 5] Input/output error")
    found = explain(replace(running, copies=full), now=0.0)
    assert found.cause == "snapshots are not copied to other nodes now: [Errno 5] Input/output error"
    assert "training goes on" in found.fix


def waiting(reason: str) -> JobState:
    node = NodeState(
        index=0, state="Pending", ranks=(), pod="x-0", host="", restarts=0, since=None, reason=reason
    )  # fmt: skip
    return replace(JOB, nodes=(node,))


def failed(
    error: str,
    *lines: str,
    target: str = "local",
    reason: str = "",
    progress: Progress = JOB.progress,
    snapshots: str = "",
    copies: CopiesReport | None = None,
    mirror: MirrorReport | None = None,
    **more: Any,
) -> JobState:
    known = replace(JOB, progress=progress, snapshots=snapshots, copies=copies, mirror=mirror)
    said = {"reason": reason} if reason else {"reason": f"rank 1 failed ({error[:99]})", "rank": 1, "node": 1}
    end = Termination(outcome="fatal", error=error, lines=lines, **said, **more)
    return replace(known, phase="Failed", target=target, reason=end.reason, failure=end)


@pytest.mark.parametrize(
    ("reason", "cause", "fix"),
    [
        ('FailedMount: MountVolume.SetUp failed for volume "cfg" : configmap "nocm" not found',
         "the configmap nocm, which a volume of the job names, does not exist", "create it in the job's namespace"),
        ('FailedMount: MountVolume.SetUp failed for volume "t" : configmap "kittrain-0.2rc1-5e" not found',
         "somebody has deleted the configmap kittrain-0.2rc1-5e, the trainer that was sent", "with kitctl 0.2rc1"),
        ('CreateContainerConfigError: secret "nosecret" not found',
         "the secret nosecret, which a variable of the job names, does not exist", "create it"),
        ('FailedCreate: Error creating: pods "x-1" is forbidden: exceeded quota: small, requested: pods=1',
         "the namespace's quota small is used up", "kubectl describe quota small"),
        ("Unschedulable: 0/4 nodes are available: 1 node(s) had untolerated taint {a: }, 3 Insufficient memory.",
         "no machine has enough free memory", "ask for less"),
        ("Unschedulable: 0/4 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
         "no machine has the labels of scheduling.nodeSelector", "--show-labels"),
        ("0/4: 1 node(s) had untolerated taint(s), 3 node(s) didn't match Pod's node affinity/selector.",
         "no machine has the labels of scheduling.nodeSelector, or only one with a taint",
         "scheduling.tolerations"),
        ("Unschedulable: 0/4 nodes are available: 4 Insufficient example.com/chip. no new claims",
         "no machine has enough free example.com/chip", "ask for less"),
        ("OOMKilled (exit code 137, the limit is 256Mi, which the namespace's LimitRange sets)",
         "OOMKilled", "kubectl describe limitrange"),
        ("is being deleted", "a pod of the job is being deleted", "its node is replaced"),
        ("0/4: 1 node(s) had untolerated taint(s), 3 node(s) didn't match PersistentVolume's node affinity.",
         "a volume of the job is in a zone", "kubectl describe pv"),
        ("Unschedulable: 0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 node(s) were unschedulable.",
         "no machine takes another pod", "uncordon"),
        ("claim x has no volume: ExternalProvisioning: ... by the external provisioner 'csi.a.b' or manually",
         "the claim x has no volume: nothing has made one, which csi.a.b should do", "--storage-class"),
        ('claim x has no volume: ProvisioningFailed: storageclass.storage.k8s.io "fast" not found',
         "claim x has no volume: ProvisioningFailed", "--storage-class"),
        ("CreateContainerConfigError: couldn't find key token in Secret n/hub (create the Secret)",
         "the Secret hub, which a variable of the job names, has no key token", "kubectl describe Secret hub"),
        ("init container fetch of x-0-abc failed (exit code 128): fatal: no such repository",
         "init container fetch failed (exit code 128): fatal: no such repository", "kubectl logs x-0-abc -c fetch"),
        ("the job is being deleted, and kept by its finalizer example.com/hold",
         "the job is being deleted, and its finalizer example.com/hold keeps it", "metadata.finalizers"),
        ("is being deleted: PreemptionByScheduler: preempting to accommodate a higher priority pod",
         "a pod of higher priority takes the place of one of the job's", "--priority"),
        ('ErrImagePull: failed to pull and unpack image "r/x:1": no match for platform in manifest: not found',
         "the image has no build for the machine's processor", "kubernetes.io/arch"),
        ('ImagePullBackOff: Back-off pulling image "x": ErrImagePull: rpc error: code = NotFound desc = x:1: not found',
         "the registry has no such image or tag", "--image"),
        ("ErrImagePull: pull access denied, repository does not exist or may require authorization",
         "the registry does not let this cluster pull the image", "--pull-secret"),
        # As kitctl's test cluster tells it, whose machine had lost a layer of an image.
        ("CreateContainerError: error unpacking image: content digest sha256:b5: not found",
         "a part of the image is missing in the machine's store", "crictl rmi IMAGE on that machine"),
        ("ErrImagePull: failed to extract layer sha256:b5: failed to get reader from content store: not found",
         "a part of the image is missing in the machine's store", "so that it is pulled anew"),
        ('ErrImagePull: failed to prepare extraction snapshot "7": parent snapshot sha256:0b does not exist: not found',
         "a part of the image is missing in the machine's store", "kubectl cordon"),
        ("ErrImagePull: failed to copy: failed to send write: write /var/lib/d1/data: no space left on device",
         "the machine's disk has no room for the image", "crictl rmi --prune"),
        ('ImagePullBackOff: Back-off pulling image "x": ErrImagePull: failed to extract layer sha256: unexpected EOF',
         "the image arrives damaged, or cut short", "push the image again"),
        ("ErrImagePull: failed to unpack image on snapshotter: unexpected media type text/html for sha256:6: not found",
         "the registry, or a proxy before it, answers with text/html", "curl -I"),
        ("node 1 is waiting for node 0 at x-0.x.n.svc.cluster.local:29400 ([Errno -2] Name or service not known)",
         "node 1 cannot resolve node 0's name x-0.x.n.svc.cluster.local", "dnsPolicy"),
        ("node 1 is waiting for node 0 at x-0.x.n.svc.cluster.local:29400 (timed out)",
         "node 1 cannot connect to node 0 at x-0.x.n.svc.cluster.local:29400", "network policies"),
        ("exec /usr/bin/python3: exec format error", "the image is for another kind of processor", "for both kinds"),
    ],
)  # fmt: skip
def test_what_a_pod_waits_for(reason: str, cause: str, fix: str) -> None:
    found = explain(waiting(reason), 0.0)
    assert found.cause.startswith(cause)
    assert fix in found.fix
    assert any(reason[:20] in line for line in found.evidence)


@pytest.mark.parametrize("stage", ["init container fetch has run for 95 s", "installing requirements"])
def test_what_runs_before_the_ranks_is_a_fact(stage: str) -> None:
    found = explain(replace(waiting(stage), reason=stage), 0.0)
    assert (found.cause, found.fix, found.fact) == ("", "", stage)


GLOO = "[enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "


QUOTA = (
    'FailedCreate: Error creating: pods "x-0" is forbidden: failed quota: compute: must specify limits.cpu for: pytorch'
)
NO_RENDEZVOUS = "waiting for the rendezvous of this run at run-0.run:29400"
BY_HTTP = (
    "the requirements cannot be installed: WARNING: The repository located at pip.team is not a trusted or secure host "
    "and is being ignored. If ...; No matching distribution found for einops==0.8.0"
)
GPU_TAINT = "0/5: 3 node(s) had untolerated taint {nvidia.com/gpu: present}, 2 Insufficient nvidia.com/gpu."
NFS = 'FailedMount: MountVolume.SetUp failed for volume "n" : mount failed: exit status 32 ... Output: mount.nfs: '
CSI = "FailedMount: kubernetes.io/csi: ... driver name efs.csi.aws.com not found in the list of registered CSI drivers"
NO_CUDA = (
    "RunContainerError: ... nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update"
)


@pytest.mark.parametrize(
    ("reason", "cause", "fix"),
    [
        (QUOTA, "the namespace's quota compute asks for limits.cpu", "describe quota compute"),
        ("FailedCreate: maximum memory usage per Container is 4Gi, but limit is 8Gi",
         "the namespace's LimitRange allows less, or more: maximum memory usage", "describe limitrange"),
        ('FailedCreate: error looking up service account a/trainer: serviceaccount "trainer" not found',
         "the service account trainer does not exist", "security.serviceAccount"),
        ("FailedCreate: pods is forbidden: no PriorityClass with name high was found",
         "the priority class high does not exist", "get priorityclass"),
        ('FailedCreate: admission webhook "validation.gatekeeper.sh" denied the request: [team] provide it',
         "FailedCreate: admission webhook", "pod.labels"),
        ('FailedCreate: Internal error occurred: failed calling webhook "mutate.istio.io": context deadline exceeded',
         "FailedCreate: Internal error", "mutatingwebhookconfigurations"),
        ("FailedCreate: unable to create new content in namespace a because it is being terminated",
         "the job's namespace is being deleted", "-n"),
        ('0/3 nodes are available: persistentvolumeclaim "data" is being deleted.',
         "the claim data is being deleted", "--claim"),
        ('0/3 nodes are available: persistentvolumeclaim "data" bound to non-existent persistentvolume "pv-1".',
         "a claim of the job is bound to a volume that is gone", "create it anew"),
        ("0/3 nodes are available: 3 node(s) did not have enough free storage.",
         "no machine's driver has room for a volume of that size", "csistoragecapacities"),
        ("0/3 nodes are available: 3 cannot allocate all claims.", "no machine has the devices", "resourceslices"),
        ("no nodes available to schedule pods", "the cluster has no machine", "get nodes"),
        ("pod group is not ready, 1 Pending, 2 minAvailable", "the pods of the job are started together", "podgroup"),
        (GPU_TAINT, "the machines with GPUs have a taint", "scheduling.tolerations"),
        ("0/3: 3 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.",
         "the machines that would do are short of disk, memory or processes: node.kubernetes.io/disk-pressure", "rmi"),
        ("0/3: 3 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.",
         "the machines that would do are not ready: node.kubernetes.io/not-ready", "kubelet"),
        ("0/3: 3 node(s) had untolerated taint {team: other}.",
         "all machines that would do have a taint that the job does not tolerate, as team", "scheduling.tolerations"),
        ("NotTriggerScaleUp: pod didn't trigger scale-up: 1 max node group size reached",
         "no machine is free, and the cluster makes none", "maximum raised"),
        ("OutOfcpu: Node didn't have enough resource: cpu, requested: 4000, used: 7000, capacity: 8000",
         "the machine has refused the pod", "cordon"),
        ("UnexpectedAdmissionError: Allocate failed due to no healthy devices present",
         "the machine has refused the pod", "device plugin"),
        ("ErrImagePull: toomanyrequests: You have reached your pull rate limit.",
         "the registry lets this cluster pull no more for now", "--pull-secret"),
        ("ErrImagePull: failed to fetch oauth token: unexpected status: 401 Unauthorized",
         "the registry does not let this cluster pull the image", "--pull-secret"),
        ('ErrImagePull: Head "https://r:5000/v2/": http: server gave HTTP response to HTTPS client',
         "the registry speaks HTTP", "hosts.toml"),
        ("ErrImagePull: tls: failed to verify certificate: x509: certificate signed by unknown authority",
         "the machines do not trust the registry's certificate", "authority"),
        ("ErrImagePull: rpc error: code = Unknown desc = pull QPS exceeded", "the machine has broken off", "nothing"),
        ("ErrImageNeverPull: Container image is not present with pull policy of Never",
         "the image is not on the machine", "kind load"),
        (NFS + "Connection timed out", "the volume's NFS server does not answer", "2049"),
        (NFS + "access denied by server while mounting 10.0.0.9:/x", "the volume's NFS server does not let", "exports"),
        ("FailedMount: mount: /x: bad option; for several filesystems (e.g. nfs, cifs) you might need a helper",
         "the machine has no program, or no module of its kernel", "nfs-common"),
        ("FailedMount: hostPath type check failed: /data is not a directory",
         "the machine has no such folder: /data", "scheduling.nodeSelector"),
        (CSI, "the driver efs.csi.aws.com of a volume does not run on the machine", "csinode"),
        ("FailedMount: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
         "a volume cannot be mounted in time", "fsGroupChangePolicy"),
        ("FailedAttachVolume: Could not attach volume: attachment limit exceeded",
         "the machine has as many volumes as it may", "ReadWriteMany"),
        ("CreateContainerConfigError: container has runAsNonRoot and image will run as root",
         "the image runs as root", "security.runAsUser"),
        ("init container fix: CreateContainerConfigError: container's runAsUser breaks non-root policy (pod: \"x\")",
         "init container fix: its runAsUser is 0, and the pod forbids root", "runAsUser: 0"),
        ('FailedCreatePodSandBox: plugin type="calico" failed (add): no IP addresses available in range set',
         "the machine's network has no address left", "range"),
        ('FailedCreatePodSandBox: no runtime for "nvidia" is configured',
         "the machine has no container runtime of the name", "toolkit"),
        (NO_CUDA, "the machine's NVIDIA driver is too old for the image: it needs cuda>=12.4", "older CUDA"),
        ("RunContainerError: nvidia-container-cli: initialization error: driver rpc error: timed out: unknown",
         "the machine's NVIDIA driver, or its container toolkit, does not work", "nvidia-smi"),
        ('Evicted: Usage of EmptyDir volume "scratch" exceeds the limit "1Gi".',
         "the pod has written more than 1Gi into its volume scratch", "raise that limit"),
        ("Evicted: The node had condition: [DiskPressure].", "Evicted: The node had condition", "pod's own disk"),
        ("Terminated: Pod was terminated in response to imminent node shutdown.", "the machine of a pod", "nothing"),
        ("waits in queue research: LocalQueue research doesn't exist", "the queue research does not exist", "--queue"),
        ('FailedResourceClaimCreation: gpu: resourceclaimtemplate.resource.k8s.io "one-gpu" not found',
         "the ResourceClaimTemplate one-gpu does not exist", "pod.resourceClaims"),
        ("the scheduler gpu-binpack has said nothing of the pod for 40 s",
         "the scheduler gpu-binpack has said nothing of the pod for 40 s", "scheduling.scheduler"),
        ("init container fetch of x-0-abc failed (exit code 137, OOMKilled)",
         "init container fetch was killed for lack of memory", "of fetch in pod.initContainers"),
        ("sidecar proxy of x-0 has ended 2 times (exit code 137, OOMKilled): starts",
         "sidecar proxy has ended 2 times, killed for lack of memory", "of proxy in pod.sidecars"),
        (NFS + "No such device", "the machine has no program, or no module of its kernel", "nfs-common"),
        ("0/4: 1 had untolerated taint(s), 3 PersistentVolumeClaim with ReadWriteOncePod access mode already in-use",
         "a claim of the job is for one pod alone (ReadWriteOncePod), and another pod uses it", "Used By"),
        ("0/4 nodes are available: 4 node(s) didn't match pod affinity rules. preemption: not helpful",
         "no machine has the pods next to which pod.affinity", "start the pods that it selects"),
        ("0/4 nodes are available: 4 node(s) didn't satisfy existing pods anti-affinity rules.",
         "pods that run on the machines let none of the job's next to them", "pod.labels"),
        ("0/4: 1 node(s) didn't have free ports, 3 didn't match Pod's node affinity/selector",
         "on all machines that would do another pod has the port", "hostPort"),
        ("0/4: 1 node(s) had untolerated taint {a: b}, 1 Too many pods, 2 didn't match Pod's node affinity/selector",
         "the machines that would do have as many pods or volumes as they may", "Allocatable"),
        ("0/4: 3 node(s) didn't match pod topology spread constraints (missing required label), 1 other",
         "no machine that would do has the label that pod.topologySpread", "ScheduleAnyway"),
        ("0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules.",
         "no further machine fits how the pods have to be spread", "scheduling.spread: prefer"),
        ("0/4: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) were unschedulable. no new",
         "no further machine fits how the pods have to be spread, but perhaps those that are cordoned",
         "kubectl uncordon takes it back; or scheduling.spread"),
        ("0/4: 2 node(s) were unschedulable, 2 node(s) didn't match pod topology spread constraints.",
         "no further machine fits how the pods have to be spread, but perhaps those that are cordoned", "uncordon"),
        ('CreateContainerConfigError: failed to create subPath directory for volumeMount "snapshots" of container "p"',
         "the claim's volume cannot be written: the folder of it that is mounted as snapshots could not be made",
         "mounted read-only"),
        ('ErrImagePull: Head "http://localhost:5001/v2/x": dial tcp 127.0.0.1:5001: connect: connection refused',
         "the registry, which is asked at the machine's own address, has no such image or tag", "name or tag"),
        ('SysctlForbidden: Pod was rejected: forbidden sysctl: "net.core.somaxconn" not allowlisted',
         "the machine refuses the pod: its kubelet does not allow the sysctl net.core.somaxconn", "pod.spec.security"),
        ('AppArmor: Pod was rejected: Cannot enforce AppArmor: profile "x" is not loaded', "AppArmor: ", "load that"),
        ("sidecar proxy of x-0 has ended 2 times (exit code 137), and its startup probe has not succeeded",
         "sidecar proxy has ended 2 times (exit code 137), and its startup probe has not succeeded",
         "kubectl describe pod x-0 shows the probe's answers"),
        (BY_HTTP,
         "the requirements cannot be installed: pip ignores the index at pip.team, which is asked by HTTP",
         "PIP_TRUSTED_HOST=pip.team"),
        ("sidecar proxy: ErrImagePull: r/x:1: not found",
         "sidecar proxy: the registry has no such image or tag", "correct its image in pod.sidecars"),
        ("init container fetch: InvalidImageName: no",
         "init container fetch: the image's name is not valid", "correct its image in pod.sidecars"),
        ("sidecar proxy: ErrImageNeverPull: no",
         "sidecar proxy: the image is not on the machine", "kind load"),
        ("the CPU limit 20m has left it 1.2 s of a processor in 60 s",
         "a node starts slowly: the CPU limit 20m has left it 1.2 s of a processor in 60 s", "resources.limits.cpu"),
        ("the CPU limit 20m has left it 1.2 s of a processor in 60 s; the namespace's LimitRange sets it",
         "a node starts slowly: the CPU limit 20m of the namespace's LimitRange", "describe limitrange"),
        ("the Service run is gone: node 1 cannot resolve node 0's name run-0",
         "the job's Service run is gone, and node 1 cannot resolve node 0's name run-0",
         f"anew: kitctl submit --name {JOB.name} --replace --resume ..."),
        ("the Secret run-rendezvous is gone: node 0 has the run's secret, and node 1 has none",
         "the job's Secret run-rendezvous is gone: node 0 has the run's secret, and node 1 has none",
         f"kitctl submit --name {JOB.name} --replace --resume ..."),
        (f"{NO_RENDEZVOUS} (node 0 has the run's secret, and this node has none)",
         "a node's secret is not that of node 0: node 0 has the run's secret, and this node has none",
         f"kitctl restart {JOB.name} has all nodes read one; if the Secret {JOB.name}-rendezvous is gone"),
        (f"{NO_RENDEZVOUS} (the other end does not know this run's secret: another secret, or another run)",
         "a node's secret is not that of node 0: the other end", "kitctl restart"),
        ("the ConfigMap run-status is gone: nothing is known of the job's progress, which may go on",
         "the ConfigMap run-status that the job reports to is gone: nothing is known of its progress, and it may train",
         f"kitctl resume {JOB.name} makes it anew"),
        ("the ConfigMap run-sources, which was made with the job, is gone: FailedMount: not found",
         "the ConfigMap run-sources is gone, which was made with the job",
         f"kitctl submit --name {JOB.name} --replace --resume ..."),
        ('0/4 nodes are available: persistentvolumeclaim "run-snapshots" not found.',
         "the claim run-snapshots does not exist", f"kitctl submit --name {JOB.name} --replace ... makes it anew"),
        ('the Job\'s parallelism is 1, of 2 nodes: Job.batch {"spec": {"parallelism": 2, "completions": 2}}',
         "the job's parallelism is 1, of 2 nodes: it waits for the others for good",
         f'kubectl patch Job.batch {JOB.name} -n {JOB.namespace} --type=merge -p \'{{"spec": {{"parallelism": 2,'),
        ("the JobSet controller has not touched the JobSet for 40 s: it has no status and no pods",
         "the JobSet controller has not touched the JobSet for 40 s: it has no status and no pods",
         "see that the JobSet controller runs, as the cluster has its kind JobSet"),
        ("Kubernetes' Job controller has not touched the Job for 40 s: it has no status and no pods",
         "Kubernetes' Job controller has not touched the Job for 40 s", "kube-controller-manager"),
        ("waits in queue lq: Kueue has made no Workload of the JobSet for 40 s",
         "Kueue has made no Workload of the job for 40 s, so the queue lq knows nothing of it",
         f"kubectl annotate JobSet {JOB.name} -n {JOB.namespace} kitctl.dev/look=1"),
        ("the job is being deleted, and waits for pod run-0-x, which its finalizer a.io/b keeps",
         "the job is being deleted, and waits for pod run-0-x, which its finalizer a.io/b keeps",
         f'kubectl patch pod run-0-x -n {JOB.namespace} --type=merge -p \'{{"metadata": {{"finalizers": null}}}}\''),
        ("the agent was killed by SIGKILL: out of memory: the limit is 200 MiB; it was started again in place 4 times",
         "the agent was killed by SIGKILL: out of memory: the limit is 200 MiB; it", "raise resources.limits.memory"),
        ('before: Unhealthy: Liveness probe failed: Get "http://10.0.0.4:8080/healthz": connection refused',
         "the ranks' container is killed, as its Liveness probe fails", "leave that probe out"),
    ],
)  # fmt: skip
def test_what_clusters_say_of_what_they_lack(reason: str, cause: str, fix: str) -> None:
    found = explain(waiting(reason), 0.0)
    assert found.cause.startswith(cause)
    assert fix in found.fix
    assert explain(failed(f"ValueError: {reason}"), 0.0).cause.startswith("rank 1: ValueError: "), "a rank's own"


@pytest.mark.parametrize(
    ("job", "cause", "fix"),
    [
        (failed(f"RuntimeError: {GLOO}Unable to find address for: eth99"),
         "the node has no network interface eth99", "ip link"),
        (failed("killed by SIGABRT at shapes.py:12", "Received data size doesn't match expected size"),
         "the ranks call different collectives, or exchange tensors of different shapes or types at shapes.py:12",
         "the same on all ranks"),
        (failed("killed by SIGSEGV at a.py:3 in main: invalid memory access", "line 1487 in _ddp_init_helper"),
         "killed by SIGSEGV in torch's own code, where DistributedDataParallel wraps the model at a.py:3 in main",
         "=DETAIL"),
        (failed("MemoryError: "), "rank 1: MemoryError:", "they share this machine's memory"),
        (failed("MemoryError: ", target="kind"), "rank 1: MemoryError:", "raise resources.limits.memory"),
        (failed("SnapshotError: no snapshot in /a is usable, and training does not start from scratch while there are "
                "some: step-00000060-g0001: no node that is left has some of its parts"),
         "rank 1: nodes were lost at once that had all copies of parts of the snapshots, and none is whole any more",
         "start over: --from-scratch; with snapshots.mirror"),
        (replace(JOB, phase="Running",
                 reason="resumed at step 40: 25 steps lost, as no node that is left has 1 of its 3 parts of step 60"),
         "resumed at step 40: 25 steps lost, as no node that is left has 1 of its 3 parts of step 60",
         "nothing, if one loss was enough"),
        (failed("SnapshotError: /a/b/c/d/e is of run 678: its model has other parameters"),
         "the snapshots that it should resume from are of another model", "--from-scratch"),
        (failed("FileNotFoundError: [Errno 2] No such file or directory: '/data/cfg.yaml'"),
         "the node has no /data/cfg.yaml", "another path"),
        (failed("torch.OutOfMemoryError: CUDA out of memory", fix="a smaller batch"),
         "rank 1: torch.OutOfMemoryError: CUDA out of memory", "a smaller batch"),
        (failed("ImportError: libcuda.so.1: cannot open shared object file", fix="a driver", target="kind"),
         "the script wants a GPU, and torch finds no NVIDIA driver", "with the driver"),
        (failed("1 GPU requested, but 0 visible to torch: check the driver"),
         "1 GPU requested, and torch sees 0", "--gpus-per-node 0"),
        (failed("OSError: [Errno 30] Read-only file system: 'runs'", fix="set security.readOnlyRoot"),
         "rank 1: OSError: [Errno 30] Read-only file system: 'runs'", "another folder"),
        (failed("exit code 3: config file missing"), "rank 1: exit code 3: config file missing", ""),
        (failed("ModuleNotFoundError: No module named 'x'", fix="name a file with x as --requirements"),
         "rank 1: ModuleNotFoundError: No module named 'x'", "--requirements"),
        (failed("ValueError: no", traceback='  File "/a/train.py", line 7\n  File "/lib/python3.11/a.py", line 1'),
         "rank 1: ValueError: no", "see train.py:7, where it was raised"),
    ],
)  # fmt: skip
def test_why_a_rank_failed(job: JobState, cause: str, fix: str) -> None:
    found = explain(job, 0.0)
    assert found.cause.removeprefix("rank 1: ") == cause.removeprefix("rank 1: ")
    assert fix in found.fix
    assert "resources.limits" not in found.fix or job.target != "local"


ANEW = "after a change of script or options: kitctl submit --name x --replace"
LATER = "it starts by itself once it can; with other options: kitctl submit --name x --replace ..."
SAVED = Progress(step=9, snapshot_step=8)
MIRROR = MirrorReport(url="s3://b/x", step=7)
MIRRORED = "step 7, which is in s3://b/x"
LATE = Termination(outcome="fatal", reason="ran longer than 12h", error="DeadlineExceeded")
NO_TIME = Termination(outcome="fatal", reason="DeadlineExceeded: Job was active longer than specified deadline")


@pytest.mark.parametrize(
    ("job", "go_on", "then"),
    [
        (failed("KeyError: 1"), "kitctl restart x", f"kitctl restart x starts it again; {ANEW} ..."),
        (failed("KeyError: 1", progress=SAVED), "kitctl restart x",
         f"kitctl restart x continues from its last snapshot; {ANEW} --resume ..."),
        (failed("KeyError: 1", target="kind"), "", "kitctl submit --name x --replace ... starts it again"),
        (failed("AttributeError: a", reason=f"rank 0 failed (AttributeError: a), {AT_THE_SAME_LINE} without a step"),
         "", f"{ANEW} ..."),
        (failed("SnapshotError: a", reason=f"rank 0 failed (SnapshotError: a), {NO_RESTART_HELPS}"), "kitctl restart x",
         f"kitctl restart x starts it again; {ANEW} ..."),
        (failed("KeyError: 1", target="kind", progress=SAVED), "",
         "kitctl submit --name x --replace --resume ... continues from its last snapshot"),
        (replace(JOB, phase="Failed", target="local", failure=LATE), "",
         "kitctl submit --name x --replace --deadline TIME ... starts it again"),
        (replace(JOB, phase="Failed", failure=NO_TIME, progress=SAVED), "",
         "kitctl submit --name x --replace --resume --deadline TIME ... continues from its last snapshot"),
        (replace(JOB, phase="Cancelled"), "kitctl restart x", "kitctl restart x starts it again"),
        (replace(JOB, phase="Cancelled", progress=SAVED), "kitctl restart x",
         "kitctl restart x continues from its last snapshot"),
        (replace(JOB, phase="Suspended", progress=SAVED), "kitctl resume x",
         "kitctl resume x continues from its last snapshot"),
        (replace(JOB, phase="Suspended"), "kitctl resume x", "kitctl resume x starts it again"),
        (replace(JOB, phase="Suspended", progress=SAVED, snapshots=OWN_MEMORY, mirror=MIRROR), "kitctl resume x",
         f"kitctl resume x continues from {MIRRORED}; on another cluster: kitctl submit --continue s3://b/x ..."),
        (replace(JOB, phase="Cancelled", progress=SAVED, snapshots=OWN_VOLUMES), "kitctl restart x",
         "kitctl restart x starts it again"),
        (failed("KeyError: 1", target="kind", progress=SAVED, snapshots=OWN_VOLUMES, mirror=MIRROR), "",
         "kitctl submit --name x --replace --continue s3://b/x ... continues from " + MIRRORED),
        (failed("KeyError: 1", progress=SAVED, snapshots="/a", copies=CopiesReport(copied_step=8)), "kitctl restart x",
         f"kitctl restart x starts it again; {ANEW} ..."),
        (replace(JOB, phase="Succeeded"), "", ""),
        (replace(JOB, phase="Succeeded", reason="the loss is nan since step 3"), "",
         "to train again: kitctl submit --name x --replace ..."),
        (waiting("InvalidImageName: x"), "", LATER),
        (replace(JOB, phase="Pending"), "", ""),
        (replace(JOB, phase="Running", reason="the loss is nan since step 3"), "", ""),
    ],
)  # fmt: skip
def test_how_to_go_on(job: JobState, go_on: str, then: str) -> None:
    found = explain(job, 0.0)
    assert (found.go_on, found.then) == (go_on, then)


@pytest.mark.parametrize(
    ("job", "cause"),
    [
        (replace(JOB, phase="Failed", target="local", failure=LATE), "ran longer than 12h"),
        (replace(JOB, phase="Failed", failure=NO_TIME), "DeadlineExceeded: Job was active longer than"),
        (failed("BackoffLimitExceeded", reason="more than 6 nodes were lost; the last, node 1, exited with 1"),
         "more than 6 nodes were lost; the last, node 1, exited with 1"),
        (failed("KeyError: 'x'", reason="BackoffLimitExceeded: Job has reached the specified backoff limit"),
         "KeyError: 'x'"),
    ],
)  # fmt: skip
def test_a_limit_of_the_job_is_the_cause_where_no_rank_has_told_one(job: JobState, cause: str) -> None:
    assert explain(job, 0.0).cause.startswith(cause)


def test_a_job_that_stands_still_has_a_fact_and_no_cause() -> None:
    still = Standstill(since=100.0, what="rank 1 sleeps at h.py:5")
    found = explain(replace(JOB, phase="Running", standstill=still), 142.0)
    assert (found.cause, found.fix, found.fact) == ("", "", "no step for 42s: rank 1 sleeps at h.py:5")
    healthy = explain(replace(JOB, phase="Running"), 142.0)
    assert (healthy.cause, healthy.fix, healthy.fact, healthy.go_on) == ("", "", "", "")


def test_a_cause_keeps_its_own_words() -> None:
    path = "/home/user/.local/state/kitctl/snapshots/default/kfull"
    assert brief(f"SnapshotError: no snapshots can be written to {path}{'/x' * 30}: [Errno 28] No space left").endswith(
        ": [Errno 28] No space left"
    )
    weights = (
        "UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options: (1) "
    )
    weights += (
        "In PyTorch 2.6, ... WeightsUnpickler error: Unsupported global: GLOBAL __main__.Config was not an allowed "
    )
    assert brief(f"{weights}global by default. Please use `torch.serialization...` https://pytorch.org").endswith(
        "Weights only load failed: Unsupported global: GLOBAL __main__.Config was not an allowed global by default"
    )
    assert len(brief("x" * 1000 + " at the end")) == LIMIT
    assert brief("x" * 1000 + " at the end").endswith("at the end")
    assert "enforce" not in brief(GLOO + "Unable to find address for: eth99")


def test_every_row_has_a_fix_that_can_be_filled_in() -> None:
    for family in FAMILIES:
        for rule in family.rules:
            groups = ["x"] * 3
            assert rule.fix.format(*groups), rule.pattern
            assert len(rule.cause.format(*groups)) <= LIMIT


def test_ranks_that_are_started_again_and_again_are_never_called_well() -> None:
    again = replace(JOB, phase="Running", restarts=3)
    assert explain(again, 0.0).cause == "its ranks were started 3 times, and have taken no step"
    assert explain(replace(again, progress=Progress(step=5)), 0.0).cause == ""
    assert explain(replace(again, restarts=2), 0.0).cause == ""
    node = replace(waiting("").nodes[0], restarts=1)
    assert explain(replace(again, nodes=(node,) * 3), 0.0).cause == "", "three nodes were lost together"
    assert explain(replace(again, nodes=(replace(node, restarts=3),)), 0.0).cause


def test_what_ranks_recover_from_is_told_with_its_fix_while_they_do() -> None:
    ended = failed("FileNotFoundError: [Errno 2] No such file or directory: '/data/cfg.yaml'")
    before = replace(ended, phase="Recovering", reason="before: node 1: rank 1 failed", failure=None)
    found = explain(replace(before, last_failure=ended.failure), 0.0)
    assert (found.cause, found.go_on) == ("rank 1: the node has no /data/cfg.yaml", "")
    assert "create it" in found.fix


@pytest.mark.parametrize(
    ("name", "by_the_clock"),
    [
        ("/out/run-2026-01-05_14-15-12/config.json", True),
        ("runs/14-15-12-021694/config.json", True),
        ("/out/20260105-141512/last.pt", True),
        ("/data/2026-01-05/train.csv", False),
        ("/data/shard-000117.bin", False),
        ("/data/10.20.30.40/train.csv", False),
        ("/out/run-1767622512.25/last.pt", True),
    ],
)
def test_a_name_with_a_time_in_it_may_be_another_one_on_each_rank(name: str, *, by_the_clock: bool) -> None:
    found = explain(failed(f"FileNotFoundError: [Errno 2] No such file or directory: '{name}'"), 0.0)
    assert ("broadcast_object_list" in found.fix) is by_the_clock, found


@pytest.mark.parametrize(
    ("note", "fix"),
    [
        (
            "rank 0: the optimizer has changed nothing: none of its parameters had a gradient at all 9 steps",
            "sharded",
        ),
        ("rank 0: the optimizer has changed nothing: its learning rate was 0 at all 9 steps", "see the learning rate"),
        ("rank 1: the DistributedSampler that shuffles has had the same order in all 3 passes: set_epoch", "set_epoch"),
        (
            "rank 1: the DistributedSampler that shuffles was read once, and set_epoch called for 9 more",
            "itertools.cycle",
        ),
        (
            "rank 0: load_state_dict(strict=False) has loaded none of Net's 8 values: it has w, and the file module.w",
            "prefix",
        ),
        (
            "rank 0: no optimizer step has used the gradients of the last 7 backward passes; others",
            "i + 1 == len(loader)",
        ),
        ("rank 0: argparse has taken for True: --freeze False", "BooleanOptionalAction"),
        ("no optimizer step was seen; rank 0: it has started 0 processes by torch.multiprocessing.spawn", "mp.spawn"),
        ("rank 0: the loss was 0.6931 in the last 12 lines that show it", ""),
        ("no optimizer step was seen; rank 0 printed last: the DistributedSampler that shuffles", ""),
    ],
)
def test_what_training_lacked_has_a_fix_and_is_no_cause(note: str, fix: str) -> None:
    found = explain(replace(JOB, phase="Succeeded", note=note), 0.0)
    assert (found.cause, found.note) == ("", note)
    assert fix in found.fix
    assert bool(found.fix) is bool(fix)


def test_a_cause_without_own_words_is_documented_by_a_message_that_leads_to_it() -> None:
    rules = [rule for family in FAMILIES for rule in family.rules]
    for rule in rules:
        if not rule.cause or rule.cause == "{0}":
            assert rule.seen, rule.pattern
            assert (
                next(
                    one
                    for one in rules
                    if one.matches(rule.seen, f"{CALLED}{AUTO * ('transformers' in rule.called)}{rule.seen}")
                )
                is rule
            ), rule.pattern


def test_what_a_rank_has_printed_does_not_hide_its_error() -> None:
    noise = ("warning: cannot record the error: PermissionError: [Errno 13] Permission denied: '/tmp/0.error.json'",)
    assert (
        explain(failed("exit code 1: ValueError: bad shard", *noise), 0.0).cause
        == "rank 1: exit code 1: ValueError: bad shard"
    )
    told = explain(failed("ValueError: bad shard", "OSError: [Errno 27] File too large"), 0.0)
    assert (told.cause, told.fix) == ("rank 1: ValueError: bad shard", "")


UNUSED = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one"
RENAME = "AttributeError: module '{0}' has no attribute 'Net' (consider renaming '/job/{0}.py'"  # as Python 3.13 says
PLACES = 'Traceback:\n  File "/job/train.py", line 9, in run\n    {0}\n'
TORCH = '  File "/lib/site-packages/torch/{0}.py", line 3, in f\n    g()\n'


@pytest.mark.parametrize(
    ("error", "line", "library", "cause", "fix"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '/o/r1.log'", 'with open(path, "a") as log:', "",
         "the folder in which /o/r1.log would be made is not there", "makedirs"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/o/r1.log'", "with open(path) as log:", "",
         "the node has no /o/r1.log", "create it"),
        ("TypeError: cannot pickle '_thread.lock' object", "torch.save(state, path)", "serialization",
         "what the script saves holds a _thread.lock, which no file can hold", "state_dict()s"),
        ("TypeError: cannot pickle '_thread.lock' object", "for batch in loader:", "multiprocessing/reductions",
         "TypeError: cannot pickle '_thread.lock' object", "__getitem__"),
        ("TypeError: cannot pickle '_thread.lock' object", "dist.broadcast_object_list(x)",
         "torch/distributed/distributed_c10d",
         "what the script sends to other ranks holds a _thread.lock, which cannot be sent", "state_dict()s"),
        ("TypeError: cannot pickle '_thread.lock' object", "pickle.dump(model, file)", "",
         "what the script copies or pickles holds a _thread.lock, which cannot be", "__getstate__"),
        ("AttributeError: 'NoneType' object has no attribute 'numel'", "for x in loader:", "utils/data/_utils/collate",
         "the data set gives None for a sample", "collate_fn"),
        ("OSError: [Errno 6] No such device or address", "user = os.getlogin()", "",
         "the script asks for its terminal, and ranks have none", "getpass.getuser()"),
        ("OSError: [Errno 6] No such device or address", "open(fifo)", "",
         "OSError: [Errno 6] No such device or address", "see train.py:9, where it was raised"),
        ("AttributeError: 'RandomSampler' object has no attribute 'set_epoch'", "loader.sampler.set_epoch(epoch)", "",
         "AttributeError: 'RandomSampler' object has no attribute 'set_epoch'", "DistributedSampler"),
        ("zipfile.BadZipFile: Bad CRC-32 for file 'a' (in DataLoader worker process 1)", "for x in loader:", "utils",
         "zipfile.BadZipFile: Bad CRC-32 for file 'a' (in DataLoader worker process 1) at train.py:9: for x in loader:",
         "open it at its first use in each worker"),
        ("zipfile.BadZipFile: Bad CRC-32 for file 'a'", "data = archive.read(name)", "",
         "zipfile.BadZipFile: Bad CRC-32 for file 'a' at train.py:9: data = archive.read(name)", "get it again"),
        ("AttributeError: Can't get attribute 'Words' on <module '__main__' from 'a.py'>", "pickle.load(file)", "",
         "the file that is read holds a Words of another script's own, and this one has none", "anew"),
        ("AttributeError: Can't get attribute 'Words' on <module '__main__' from 'a.py'>", "", "multiprocessing/spawn",
         "AttributeError: Can't get attribute 'Words' on <module '__main__' from 'a.py'>", "top level"),
        (f"{RENAME.format('queue')} since it has the same name as the standard library module named 'queue')",
         "queue.Net()", "", "the script's own queue.py hides Python's module queue, which has Net", "another name"),
        (f"{RENAME.format('nets')} if it has the same name as a library you intended to import)", "nets.Net()", "",
         f"{RENAME.format('nets')} if it has the same name as a library you intended to import)", "rename that"),
        (UNUSED, "loss = model(x)", "nn/parallel/distributed",
         "a step gave some of the model's parameters no gradient, for which DistributedDataParallel waits",
         "find_unused_parameters"),
        (f"{UNUSED}. this is not compatible with static_graph set to True", "loss = model(x)", "nn/distributed",
         "the steps use other parameters than the first, which DistributedDataParallel(static_graph=True) rules out",
         "leave out static_graph=True"),
        ("RuntimeError: The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0",
         "schedule.step(target=y)", "distributed/pipelining/stage",
         "a pipeline's micro-batches differ in size: 3 and 2", "a multiple of n_microbatches"),
        ("RuntimeError: The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0",
         "loss = mse(a, b)", "nn/functional",
         "RuntimeError: The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0",
         "3 and 2 in dimension 0: pad or cut one"),
        ("RuntimeError: Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol",
         "ema = copy.deepcopy(model)", "_tensor",
         "RuntimeError: Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol",
         "detach() what it keeps"),
        ("RuntimeError: Optimizer state has not been consolidated on this rank. Please `x`", "save()", "optim",
         "RuntimeError: Optimizer state has not been consolidated on this rank. Please `x`", "consolidate_state_dict"),
        ("RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be",
         "clip()", "nn/utils", "a gradient is NaN or infinite, and clip_grad_norm_(error_if_nonfinite=True) refuses it",
         "torch.isfinite"),
    ],
)  # fmt: skip
def test_an_error_means_what_its_line_and_its_library_make_of_it(
    error: str, line: str, library: str, cause: str, fix: str
) -> None:
    trace = PLACES.format(line) + (TORCH.format(library) if library else "")
    found = explain(failed(error, traceback=f"{trace}{error}\n"), 0.0)
    assert found.cause == f"rank 1: {cause}"
    assert fix in found.fix


def test_a_program_that_is_missing_is_told_from_a_file() -> None:
    error = "FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'"
    trace = '  File "/a/train.py", line 7\n  File "/usr/lib/python3.11/subprocess.py", line 1026, in _execute_child\n'
    assert explain(failed(error, traceback=trace), 0.0).cause == "rank 1: the node has no program nvcc"
    assert "program" not in explain(failed(error), 0.0).cause


def test_ranks_that_lose_their_peers_again_and_again_have_a_cause_and_others_none() -> None:
    reason = "rank 0 lost its peers (RuntimeError: Timed out waiting 4000ms for recv operation to complete)"
    (node,) = waiting(reason).nodes
    running = replace(JOB, phase="Running", nodes=(replace(node, state="Running"),))
    assert explain(replace(running, restarts=1), 0.0).cause == ""
    assert explain(replace(running, restarts=15, progress=Progress(step=4)), 0.0).cause == ""
    anew = "resumed at step 0: 60 steps lost; the script has loaded nothing that it saved in this run"
    begins_anew = replace(running, restarts=15, progress=Progress(step=60), reason=anew)
    for stuck in (replace(running, restarts=15), begins_anew):
        found = explain(stuck, 0.0)
        assert "timed out in a collective" in found.cause
        assert "timeout" in found.fix
    assert explain(replace(begins_anew, restarts=1), 0.0).cause == anew


def test_a_failure_that_a_job_comes_to_again_as_it_begins_anew_is_told_before_the_steps_that_it_costs() -> None:
    anew = "resumed at step 0: 60 steps lost; the script has loaded nothing that it saved in this run"
    how = "ended with exit code 0 at 12:00:03 UTC, 3 s before rank 1 lost it"
    left = PastFailure(time=9.0, node=0, rank=0, cause=how)
    job = replace(JOB, phase="Running", restarts=1, progress=Progress(step=60), reason=anew, failures=(left,))
    found = explain(job, 12.0)
    assert (found.cause, found.before) == (f"rank 0 {left.cause}", "")
    assert "same number of steps" in found.fix
    killed = replace(job, failures=(PastFailure(time=9.0, node=0, rank=0, cause="killed by SIGKILL"),))
    assert explain(killed, 12.0).cause == anew, "that need not happen again"


def test_ranks_that_came_too_late_are_told_before_the_steps_that_it_costs_to_begin_anew() -> None:
    late = RecoveryTimings(cause="the ranks of node 1, pod run-1-x7k2p timed out after 25000 ms in a collective; ...")
    anew = "resumed at step 0: 100 steps lost; the script has loaded nothing that it saved in this run"
    job = replace(JOB, phase="Running", restarts=1, progress=Progress(step=60), reason=anew, last_recovery=late)
    found = explain(job, 12.0)
    assert found.cause == (
        "the ranks of node 1 timed out after 25000 ms in a collective: the other ranks did not come in time"
    )
    assert "a longer timeout" in found.fix
    lost = RecoveryTimings(cause="node 1, pod run-1-x7k2p is lost")
    assert explain(replace(job, last_recovery=lost), 12.0).cause == anew


@pytest.mark.parametrize(
    ("why", "cause", "fix"),
    [
        (
            "rank 1 ignores SIGTERM, and was killed after 7 s; fix: leave out what ignores it, and save",
            "rank 1 ignores SIGTERM, and was killed after 7 s",
            "leave out what ignores it, and save",
        ),
        (
            "rank 1 took 140 more steps after SIGTERM, and was killed after 7 s; fix: look in each step, and save",
            "rank 1 took 140 more steps after SIGTERM, and was killed after 7 s",
            "look in each step, and save",
        ),
        (
            "its ranks were killed before they had saved and ended; fix: a policy.gracePeriod of more than 12s",
            "a drained node's ranks were killed before they had saved and ended",
            "a policy.gracePeriod of more than 12s",
        ),
    ],
)
def test_a_signal_that_ranks_did_not_heed_in_time_is_told_before_the_steps_that_it_costs(
    why: str, cause: str, fix: str
) -> None:
    anew = "resumed at step 0: 60 steps lost; the script has loaded nothing that it saved in this run"
    (node,) = waiting(f"before: received a stop signal; {why}").nodes
    running = replace(JOB, phase="Running", nodes=(replace(node, state="Running"),), progress=Progress(step=60))
    found = explain(replace(running, restarts=1, reason=anew), 0.0)
    assert (found.cause, found.fix) == (cause, fix)
    assert explain(replace(running, restarts=1), 0.0).cause == "", "nothing is lost: it went on from what it had saved"


def test_a_size_that_was_another_collectives_data_is_no_lack_of_memory() -> None:
    error = "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    error += "you tried to allocate {} bytes. Error code 12 (Cannot allocate memory)"
    huge, large = error.format(1795805313113641494), error.format(64000000000)
    frame = '  File "/usr/lib/site-packages/torch/distributed/distributed_c10d.py", line 4476, in all_gather_object\n'
    assert "call different collectives" in explain(failed(huge, traceback=frame), 0.0).cause
    for told in (failed(huge), failed(large, traceback=frame)):
        assert "can't allocate memory" in explain(told, 0.0).cause


def test_a_wrong_size_is_the_optimizers_only_if_it_is_found_there() -> None:
    error = "RuntimeError: The size of tensor a (841) must match the size of tensor b (1681) at non-singleton dimension"
    step = '  File "/job/train.py", line 27, in step\n    adam.step()\n'
    own = '  File "/job/train.py", line 9, in forward\n    return a + b\n'
    inside = '  File "/usr/lib/site-packages/torch/optim/adam.py", line 460, in _single\n    exp_avg.lerp_(grad)\n'
    found = explain(failed(error, traceback=f"{step}{inside}{error}"), 0.0)
    assert "the optimizer's state that was loaded is of other parameters: its size (841)" in found.cause
    closure = explain(failed(error, traceback=f"{step}{inside}{own}{error}"), 0.0)
    assert closure.fix == "see train.py:9, where it was raised"


def test_a_length_is_the_samplers_only_if_it_asks_for_it() -> None:
    error = "TypeError: object of type 'Shards' has no len()"
    own = '  File "/job/train.py", line 24, in main\n    sampler = DistributedSampler(train)\n'
    sampler = '  File "/usr/lib/site-packages/torch/utils/data/distributed.py", line 97, in __init__\n'
    assert "a DistributedSampler needs" in explain(failed(error, traceback=own + sampler), 0.0).cause
    assert explain(failed(error, traceback=own), 0.0).fix == "see train.py:24, where it was raised"


def test_a_note_is_told_of_a_job_without_a_cause_and_is_none() -> None:
    job = replace(JOB, phase="Succeeded", ended=2.0, note="no optimizer step was seen")
    found = explain(job, 3.0)
    assert (found.cause, found.fix, found.headline, found.note) == ("", "", "", job.note)
    assert list(lines(found, job)) == ["Succeeded; no optimizer step was seen"]
    warned = explain(replace(job, reason="the loss is nan since step 31"), 3.0)
    assert (warned.cause, warned.note) == ("the loss is nan since step 31", "")


def test_frames_of_kittrain_are_no_place_of_the_users_script() -> None:
    trace = (
        '  File "/a/train.py", line 7, in main\n  File "/opt/kittrain/agent/hooks/script_hooks.py", line 91, in step\n'
    )
    assert explain(failed("ValueError: no", traceback=trace), 0.0).fix == "see train.py:7, where it was raised"


def test_a_hang_of_all_ranks_is_told_once_and_whole() -> None:
    what = "ranks 0-1 have been in FileBaton.wait for 900 s, at train.py:7 in f, for a lock file that no rank of "
    hang = f"hang: {what}this job holds"
    end = Termination(outcome="retryable", reason=f"{hang}; again at this step, restart 1 of 3", rank=0, error=hang)
    past = PastFailure(time=100.0, node=0, rank=0, cause=hang)
    job = replace(JOB, phase="Running", reason=f"before: {end.reason}", last_failure=end, failures=(past,))
    found = explain(job, 200.0)
    assert (found.cause, found.before) == (f"{what}this job holds", "")
    assert "remove the lock file" in found.fix


def test_what_ends_a_job_has_its_fix_before_its_other_nodes_have_ended() -> None:
    last = failed("ValueError: no", traceback='  File "/a/train.py", line 7, in main').failure
    ending = replace(JOB, phase="Recovering", reason="rank 1 failed (ValueError: no), no restart left of 0")
    assert explain(replace(ending, last_failure=last), 0.0).fix == "see train.py:7, where it was raised"


HANG = "hang: rank 1 (node 1, pod x-1) has been in step 61 for 15 s, at h.py:12 in <module>; rank 0 waits in all_reduce"


@pytest.mark.parametrize("whole", ["a recovery", "a node", ""])
def test_what_a_job_has_recovered_from_is_told_in_the_past_with_its_fix(whole: str) -> None:
    past = PastFailure(time=100.0, node=1, rank=1, cause=f"{HANG[:99]}…")
    recovery = RecoveryTimings(cause=f"{HANG}; started again; resumed at step 0: 57 steps lost")
    node = NodeState(
        index=0,
        state="Running",
        ranks=(0,),
        pod="x-0",
        host="",
        restarts=0,
        since=1.0,
        reason=f"before: {HANG}; started again",
    )
    job = replace(JOB, phase="Running", failures=(past,), last_recovery=recovery if whole == "a recovery" else None)
    found = explain(replace(job, nodes=(node,) if whole == "a node" else ()), 230.0)
    assert (found.cause, found.fix, found.then) == ("", "", "")
    assert found.before == f"2m10s ago, rank 1 of node 1: {HANG if whole else past.cause}"
    assert "fix the named line" in found.before_fix
    told = list(lines(found, job))
    assert told[:2] == ["nothing is known to be wrong: Running", f"before: {found.before}"]
    assert told[2].startswith("its fix: fix the named line")
    ended = explain(replace(job, phase="Succeeded", ended=130.0), 999.0)
    assert ended.before.startswith("30s before its end, rank 1 of node 1: hang")


def test_a_cause_in_words_of_its_own_is_not_told_as_what_was_before() -> None:
    crash = "killed by SIGABRT at train.py:8 in evaluate: op.preamble.length <= op.nbytes. 652 vs 8. Received da…"
    past = PastFailure(time=100.0, node=0, rank=0, cause=crash)
    begun = replace(JOB, phase="Running", reason="resumed at step 0: 500 steps lost", failures=(past, past))
    found = explain(begun, 102.0)
    assert found.cause.endswith("or exchange tensors of different shapes or types at train.py:8 in evaluate")
    assert "a last, shorter batch" in found.fix
    assert (found.before, found.before_fix) == ("", "")
    assert found.evidence[-1] == f"before, 2 times: rank 0 of node 0: {crash}"


def test_of_ranks_that_differ_the_place_of_both_is_told() -> None:
    crash = "killed by SIGABRT at train.py:8 in evaluate: op.preamble.length <= op.nbytes. 652 vs 8. Received da…"
    job = failed(crash)
    assert job.failure is not None
    told = record.replace(job.failure, elsewhere="rank 0 was at train.py:24")
    found = explain(replace(job, failure=told), 0.0)
    assert found.cause.endswith("shapes or types: rank 1 at train.py:8 in evaluate when rank 0 was at train.py:24")
    assert found.cause.startswith("the ranks call different collectives")
    assert found.code == "collective-mismatch"


def test_what_ranks_recover_from_has_the_fix_that_the_agent_knew() -> None:
    past = PastFailure(time=100.0, node=1, rank=1, cause="RuntimeError: Too many open files. Com…", fix="close some")
    begun = replace(JOB, phase="Running", reason="resumed at step 0: 9 steps lost", failures=(past,))
    assert explain(begun, 102.0).fix == "close some"
    found = explain(replace(begun, reason=""), 102.0)
    assert (found.cause, found.before_fix) == ("", "close some")


def test_frames_of_libraries_in_a_dump_are_folded() -> None:
    frames = ['  File "/v/site-packages/torch/distributed/c10d.py", line 1 in all_reduce'] * 3
    lines = ("Fatal Python error: Aborted", *frames, '  File "/a/train.py", line 8 in evaluate')
    shown = explain(failed("killed by SIGABRT", *lines), 0.0).evidence
    assert shown[1:] == (lines[0], "  ... 3 frames of torch", lines[-1])


def test_the_cause_of_a_job_is_not_told_twice() -> None:
    past = PastFailure(time=100.0, node=1, rank=1, cause="ValueError: no")
    assert explain(replace(failed("ValueError: no"), failures=(past,)), 200.0).before == ""
    recovering = replace(JOB, phase="Recovering", reason="before: node 1: rank 1 failed (ValueError: no)")
    assert explain(replace(recovering, failures=(past,)), 200.0).before == ""


def test_a_standstill_has_a_fix_only_if_it_cannot_go_on() -> None:
    what = (
        "ranks 0-1 wait in init_process_group; rank 0 says: world_size 4 is not this process's WORLD_SIZE, which is 2"
    )
    found = explain(replace(JOB, phase="Running", standstill=Standstill(since=100.0, what=what)), 142.0)
    assert (found.cause, found.fact) == ("", f"no step for 42s: {what}")
    assert found.fix.startswith("leave out rank and world_size of init_process_group")
    refused = Standstill(since=100.0, what="rank 0 sleeps at h.py:5; rank 0 says: error: connection refused")
    assert explain(replace(JOB, phase="Running", standstill=refused), 142.0).fix == ""
    apart = Standstill(since=100.0, what="rank 0 waits in barrier at h.py:5, rank 1 waits in all_reduce at h.py:9")
    assert explain(replace(JOB, phase="Running", standstill=apart), 142.0).fix == ""
    apart = Standstill(since=100.0, what=f"{apart.what}; each waits for others")
    assert "in the same order" in explain(replace(JOB, phase="Running", standstill=apart), 142.0).fix


@pytest.mark.parametrize(
    ("places", "fix"),
    [
        ("ranks 0-1 wait in send at h.py:5", "all ranks send first"),
        ("rank 0 waits in send at h.py:5, rank 1 waits in send at h.py:9 in wait in", "all ranks send first"),
        ("ranks 0-3 wait in recv at h.py:5", "no rank sends"),
        ("rank 0 waits in recv at h.py:5, rank 1 waits in barrier at h.py:9", "the same collectives in the same order"),
    ],
)
def test_ranks_that_all_send_or_all_receive_have_a_fix_of_their_own(places: str, fix: str) -> None:
    apart = Standstill(since=100.0, what=f"{places}; each waits for others")
    assert fix in explain(replace(JOB, phase="Running", standstill=apart), 142.0).fix


NOTICE = (
    "rank 0 has saved out/a.pt to its node's own folder: ranks of other nodes do not find it there; use --outputs out"
)


@pytest.mark.parametrize("reason", [NOTICE, NOTICE.replace("; use", ", and it is gone with its pod; use")])
@pytest.mark.parametrize("phase", ["Running", "Recovering"])
def test_where_a_checkpoint_is_saved_explains_neither_a_failure_nor_a_standstill(phase: Phase, reason: str) -> None:
    running = replace(JOB, phase=phase, reason=reason)
    found = explain(running, 142.0)
    assert (found.cause, found.fix, found.headline, found.note) == ("", "", "", reason)
    still = explain(replace(running, standstill=Standstill(since=100.0, what="rank 0 sleeps at h.py:5")), 142.0)
    assert (still.cause, still.fix, still.headline) == ("", "", "no step for 42s: rank 0 sleeps at h.py:5")
    assert still.note == reason
    told = Termination(outcome="retryable", rank=1, node=1, error="KeyError: 'ids'", traceback=CALLED)
    failing = explain(replace(running, last_failure=told), 142.0)
    assert (failing.cause, failing.note) == ("rank 1: KeyError: 'ids'", "")


def test_where_a_checkpoint_is_saved_is_a_note_of_a_job_that_has_succeeded_if_it_is_still_there() -> None:
    done = replace(JOB, phase="Succeeded", ended=2.0, reason=NOTICE)
    found = explain(done, 3.0)
    assert (found.cause, found.fix, found.note) == ("", "", NOTICE)
    schedule = "rank 0: a learning rate schedule began anew, although its optimizer was resumed: LambdaLR"
    both = explain(replace(done, note=schedule), 3.0)
    assert both.note == f"{schedule}; {NOTICE}", "first what the fix is for"
    assert both.fix.startswith("save scheduler.state_dict()")
    assert explain(replace(done, note="rank 0 printed last: done"), 3.0).note == f"{NOTICE}; rank 0 printed last: done"
    gone = NOTICE.replace("; use", ", and it is gone with its pod; use")
    assert explain(replace(done, reason=gone), 3.0).cause.endswith("it is gone with its pod")


def test_a_hidden_error_of_a_job_that_did_nothing_has_a_fix_and_that_of_one_that_trained_has_none() -> None:
    error = "ValueError: signal only works in main thread of the main interpreter"
    hidden = f"rank 0 printed a traceback, and ended with exit code 0: {error}"
    done = replace(JOB, phase="Succeeded", ended=2.0, note=hidden)
    assert explain(done, 3.0).fix == ""
    nothing = explain(replace(done, note=f"no optimizer step was seen; {hidden}"), 3.0)
    assert (nothing.cause, nothing.note) == ("", f"no optimizer step was seen; {hidden}")
    assert nothing.fix.startswith("set signal handlers in the main thread")


@pytest.mark.parametrize(
    ("what", "fix"),
    [
        ("rank 0 waits in DDP's broadcast of buffers at t.py:16, rank 1 waits in barrier at t.py:27", "model.module"),
        ("rank 0 waits in send at t.py:1, rank 1 waits in barrier at t.py:2", "in the same order"),
        (
            "rank 0 waits in all_reduce of [9] float32 at t.py:9, rank 1 waits in broadcast from rank 0 at t.py:13",
            "in the same order",
        ),
        (
            "rank 0 waits in gather to rank 1 at t.py:9, rank 1 waits in gather of [3] float32 to rank 0 at t.py:13",
            "name the same rank on all",
        ),
        ("ranks 0-1 wait in broadcast_object_list from themselves at t.py:9", "name the same rank on all"),
    ],
)
def test_ranks_that_wait_for_each_other_have_the_fix_of_where_they_wait(what: str, fix: str) -> None:
    waiting = replace(JOB, phase="Running", standstill=Standstill(since=100.0, what=what))
    assert explain(waiting, 142.0).fix == ""
    apart = replace(JOB, phase="Running", standstill=Standstill(since=100.0, what=f"{what}; each waits for others"))
    assert fix in explain(apart, 142.0).fix


LOST, LOST_CODE = ", forked without the thread that it waits for", "forked-without-threads"


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("rank 0 waits for a process whose queue nobody reads at t.py:23 in f", "child-process-queue-unread"),
        ("ranks 0-1 wait for a pool of processes at t.py:2, which is at t.py:1 in f", ""),
        (f"rank 0 waits for a process at t.py:2, which is at t.py:1 in f{LOST}, rank 1 waits in barrier", LOST_CODE),
        (f"rank 0 waits for its data loader at t.py:2, whose worker is at t.py:1{LOST}", LOST_CODE),
    ],
)
def test_processes_that_can_never_go_on_have_a_fix_and_no_cause(what: str, code: str) -> None:
    found = explain(replace(JOB, phase="Running", standstill=Standstill(since=100.0, what=what)), 142.0)
    assert (found.cause, found.code, bool(found.fix)) == ("", code, bool(code))
    assert found.headline.startswith(f"no step for 42s: {what[:80]}")


THERE = "FileExistsError: [Errno 17] File exists: 'out'"


def test_what_an_earlier_start_has_left_is_no_cause_but_what_has_ended_that_start_is() -> None:
    ends = [PastFailure(time=5.0, rank=0, cause="killed by SIGKILL"), PastFailure(time=7.0, rank=1, cause=THERE)]
    found = explain(replace(failed(THERE, time=9.0), failures=(*ends,)), 10.0)
    assert found.cause == f"rank 0: killed by SIGKILL; started again, rank 1: {THERE}"
    assert found.fix.startswith("let the script take what it finds when it is started again: exist_ok=True")
    assert found.fix.endswith("of the first failure: kitctl logs x --failed shows how they ended")
    known = PastFailure(time=5.0, cause="RuntimeError: 1D target tensor expected, multi-target not supported")
    found = explain(replace(failed(THERE, time=9.0), failures=(known, ends[1])), 10.0)
    assert "shapes of output and labels" in found.fix
    long = PastFailure(time=5.0, cause=f"ValueError: {'x' * 300}")
    assert len(explain(replace(failed(THERE, time=9.0), failures=(long,)), 10.0).cause) <= LIMIT
    # A script that prints its error itself, as Hydra does.
    hydra = "exit code 1: Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."
    for error in (hydra, f"exit code 1: {THERE}"):
        again = PastFailure(time=7.0, rank=1, cause=error)
        printed = failed(error, "Error executing job", THERE, "", time=9.0)
        found = explain(replace(printed, failures=(ends[0], again)), 10.0)
        assert found.cause == f"rank 0: killed by SIGKILL; started again, rank 1: {THERE}"
    # All ranks make it at once; or another rank fails after that.
    assert explain(replace(failed(THERE, time=9.0), failures=(ends[1],)), 10.0).cause == f"rank 1: {THERE}"
    later = PastFailure(time=11.0, cause="killed by SIGKILL")
    assert explain(replace(failed(THERE, time=9.0), failures=(later,)), 12.0).cause == f"rank 1: {THERE}"


def test_a_crash_is_told_before_the_steps_that_it_costs_and_a_kill_from_outside_is_not() -> None:
    anew = "resumed at step 0: 60 steps lost; the script has loaded nothing that it saved in this run"
    running = replace(JOB, phase="Running", reason=anew, progress=Progress(step=9))
    crashed = PastFailure(time=5.0, rank=1, cause="killed by SIGABRT at train.py:8 in f: native code aborted")
    found = explain(replace(running, failures=(crashed,)), 9.0)
    assert found.cause == f"rank 1: {crashed.cause}"
    assert found.fix.startswith("see the call in the stack")
    found = explain(replace(running, failures=(PastFailure(time=5.0, rank=1, cause="killed by SIGKILL"),)), 9.0)
    assert (found.cause, "--outputs" in found.fix) == (anew, True)


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("exit code 2: train.py: error: unrecognized arguments: --local_rank=0", "int(os.environ['LOCAL_RANK'])"),
        ("exit code 2: train.py: error: unrecognized arguments: --lr 1 --local-rank 0", "leave --local-rank out"),
        ("exit code 2: train.py: error: unrecognized arguments: --epoch 3", "add this one to its parser"),
        ("exit code 2: train.py: error: the following arguments are required: --data", "-- train.py --data ..."),
        ("exit code 128: fatal: not a git repository (or any of the parent directories): .git", "--env COMMIT="),
        ("exit code 128: fatal: detected dubious ownership in repository at '/w'", "GIT_CONFIG_KEY_0=safe.directory"),
        ("JSONDecodeError: Expecting property name enclosed in double quotes: line 5 column 1 (char 75)", "} or ]"),
        ("JSONDecodeError: Expecting ',' delimiter: line 2 column 7 (char 12)", "line 2, column 7"),
        ("JSONDecodeError: Expecting value: line 3 column 1 (char 12)", "line 3, column 1"),
        ("JSONDecodeError: Illegal trailing comma before end of object: line 4 column 9 (char 2)", "line 4, column 9"),
        ("JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "is empty, cut short"),
        ("JSONDecodeError: Extra data: line 2 column 1 (char 20)", "json.loads(line) for each line"),
        ("RuntimeError: Error(s) in loading state_dict for FSDPNet: ... got mixed torch.Tensor and DTensor, need to",
         "set_model_state_dict"),
        ('RuntimeError: Error(s) in loading state_dict for Net: Unexpected key(s): "_orig_mod.0.weight".',
         "model._orig_mod.state_dict()"),
        ('RuntimeError: Error(s) in loading state_dict for Net: Unexpected key(s): "module.0.bias".', "model.module."),
        ("killed by SIGABRT at train.py:3 in f: native code aborted", "see the call in the stack"),
        ("TypeError: Got unsupported ScalarType BFloat16", ".float() before .numpy()"),
        ("ValueError: DistributedDataParallel device_ids and output_device arguments only work with", "leave out"),
        ("RuntimeError: Expected to mark a variable ready only once. This error", "use_reentrant=False"),
        ("ValueError: AcceleratorState has already been initialized and cannot be changed", "one Accelerator"),
        ("KeyError: \"The `metric_for_best_model` training argument is set to 'eval_f1'", "compute_metrics"),
        ("ValueError: The model did not return a loss from the inputs, only", "name that column labels"),
        ("RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss",
         "ddp_find_unused_parameters_true"),
        ("TypeError: '<=' not supported between instances of 'float' and 'str'", "1.0e-4"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '../data/a.csv'", "Path(__file__).parent"),
        ("exit code 1: FileNotFoundError: [Errno 2] No such file or directory: 'data/a.csv'", "to_absolute_path"),
        ("ValueError: DataLoader with IterableDataset: expected unspecified sampler option, but", "leave out sampler"),
        ("ValueError: Tried to step 151 times. The specified number of total steps is 150", "epochs * len(loader)"),
        ("RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameter", "frozen"),
        ("RuntimeError: record size (3200 bytes) does not match expected size (1600 bytes)", "let one rank write"),
        ("RuntimeError: You can't use batches of different size with `dispatch_batches=True`", "dispatch_batches="),
        ("PermissionError: [Errno 13] Permission denied: '/.cache'", "HOME=/tmp"),
        ("PermissionError: [Errno 13] Permission denied: '/root/.triton'", "HOME=/tmp"),
        ("RuntimeError: Parent directory out/7 does not exist.", "os.makedirs('out/7'"),
        ("ValueError: SyncBatchNorm layers only work with GPU modules", "torch.cuda.is_available()"),
        ("ValueError: SyncBatchNorm expected input tensor to be on GPU", "torch.cuda.is_available()"),
        ("ValueError: You set `devices=4` in Lightning, but the number of processes is 1", "LOCAL_WORLD_SIZE"),
        ("ValueError: You set `devices=4` and `num_nodes=2` in Lightning, but the product", "LOCAL_WORLD_SIZE"),
        ("ValueError: `val_check_interval` (100) must be less than or equal to the number of", "check_val_every"),
        ("ValueError: Output directory (out) already exists and is not empty. Use", "--resume_from_checkpoint"),
        ("ModuleNotFoundError: No module named 'pkg_resources'", "setuptools<81"),
        ("ModuleNotFoundError: No module named 'distutils.version'", "setuptools<81"),
        ("ModuleNotFoundError: No module named 'cv2'", "opencv-python-headless"),
        ("ImportError: Cannot load backend 'TkAgg' which requires the 'tk' interactive framework", "MPLBACKEND=Agg"),
        ("ImportError: cannot import name 'Net' from partially initialized module 'models' (most", "a third one"),
    ],
)  # fmt: skip
def test_errors_of_frameworks_have_fixes(error: str, fix: str) -> None:
    found = explain(failed(error), 0.0)
    assert found.cause.startswith("rank 1: ")
    assert fix in found.fix


def test_an_error_is_known_by_its_own_words_and_not_by_those_that_are_cut() -> None:
    error = "ImportError: cannot import name 'x' from 'transformers.utils' (/x/site-packages/transformers/__init__.py)"
    cut = f"rank 1 failed ({error[:70]}…), no restart left of 3"
    assert "the installed transformers has no x" in explain(failed(error, reason=cut, rank=1, node=1), 0.0).fix
