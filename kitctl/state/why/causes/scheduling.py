"""Causes in scheduling, quota and admission. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.facts import NO_WORKLOAD_FIX
from kitctl.state.why.rule import AGAIN, Family, Rule, quoted

SCHEDULING: Final = Family(
    "Scheduling and quota",
    "Pending",
    (
        Rule(
            "quota-exceeded",
            r"exceeded quota: ([\w.-]+)",
            "the namespace's quota {0} is used up",
            "end other jobs, ask for less, or have it raised: kubectl describe quota {0}",
        ),
        Rule(
            "quota-resource-unspecified",
            r"failed quota: ([\w.-]+): must specify (\S+)",
            "the namespace's quota {0} asks for {1}",
            "set resources.requests and resources.limits of what it names (--memory sets both): kubectl "
            "describe quota {0}",
        ),
        Rule(
            "limit-range-violated",
            r"((?:maximum|minimum) \S+ usage per (?:Container|Pod) is \S+), but (\w+) is ([\w.]+)",
            "the namespace's LimitRange allows less, or more: {0}, and the {1} is {2}",
            "ask for what kubectl describe limitrange allows: resources.requests, resources.limits",
        ),
        Rule(
            "service-account-not-found",
            r"error looking up service account [^/\s]+/(\S+): ",
            "the service account {0} does not exist",
            "create it, or leave security.serviceAccount out; the pods are made by themselves then; one named JOB was "
            f"made with the job: {AGAIN}",
        ),
        quoted(
            "admission-webhook-denied",
            r"admission webhook \"[^\"]+\" denied",
            "a policy of this cluster forbids it: follow its message; labels are in labels, those of pods alone in "
            "pod.labels, and their annotations in pod.annotations",
            'FailedCreate: Error creating: admission webhook "validation.gatekeeper.sh" denied the request: ...',
        ),
        quoted(
            "admission-webhook-failed",
            r"failed calling webhook \"",
            "the cluster asks that webhook about each pod, and it does not answer: tell its administrator; kubectl get "
            "validatingwebhookconfigurations,mutatingwebhookconfigurations lists them",
            'FailedCreate: Error creating: Internal error occurred: failed calling webhook "mutate.istio.io": ...',
        ),
        Rule(
            "priority-class-not-found",
            r"no PriorityClass with name (\S+) was found",
            "the priority class {0} does not exist",
            "kubectl get priorityclass lists them: --priority",
        ),
        Rule(
            "namespace-terminating",
            r"because it is being terminated",
            "the job's namespace is being deleted",
            "submit it in another namespace: -n",
        ),
        Rule(
            "pod-security-violated",
            r"violates PodSecurity",
            "",
            "leave out what the message names (security.profile: restricted is the default), or use a namespace of "
            "another Pod Security level (docs/fabrics.md)",
            seen="violates PodSecurity restricted:latest: ...",
        ),
        Rule(
            "claim-waits-for-provisioner",
            r"claim (\S+) has no volume: ExternalProvisioning\b.*?external provisioner '([^']+)'",
            "the claim {0} has no volume: nothing has made one, which {1} should do",
            "see that the driver {1} runs in the cluster, or name another class of kubectl get storageclass: "
            "--storage-class",
        ),
        Rule(
            "claim-has-no-matching-volume",
            r"claim (\S+) has no volume: FailedBinding\b.*?(?:no persistent volumes available|no storage class is set)",
            "the claim {0} has no volume: it names no storage class that makes one, and none that is free fits",
            "name a class that makes volumes (kubectl get storageclass): --storage-class; or another claim: --claim",
        ),
        Rule(
            "claim-not-bound",
            r"(claim \S+ has no volume): (.*)",
            "{0}: {1}",
            "make the claim anew with a class of kubectl get storageclass, if the message is of that: one that kitctl "
            "makes by --storage-class; or name another claim",
            seen="claim run-snapshots has no volume: ProvisioningFailed: ...",
        ),
        Rule(
            "claim-being-deleted",
            r'persistentvolumeclaim "([^"]+)" is being deleted',
            "the claim {0} is being deleted",
            "name another one (--claim), or create it anew once it is gone: a pod that still uses it keeps it",
        ),
        Rule(
            "claim-volume-lost",
            r'persistentvolumeclaim "([^"]+)" bound to non-existent persistentvolume|(bound to non-existent pv)',
            "a claim of the job is bound to a volume that is gone",
            "its data are lost: delete the claim (kubectl get pvc shows it as Lost), and create it anew",
        ),
        Rule(
            "volume-being-created",
            r"waiting for a volume to be created|waiting for (?:the )?ephemeral volume controller",
            "a volume of the job is being made",
            "nothing, if that takes a minute; else see that the driver of its storage class runs: kubectl describe pvc",
        ),
        Rule(
            "claim-used-by-another-pod",
            r"PersistentVolumeClaim with (?:the same name and )?ReadWriteOncePod access mode",
            "a claim of the job is for one pod alone (ReadWriteOncePod), and another pod uses it",
            "name a claim that pods share (ReadWriteMany): a job of several nodes has several pods; or, if the pod is "
            "another job's (kubectl describe pvc shows it as Used By), wait until that ends",
        ),
        Rule(
            "storage-capacity-insufficient",
            r"did not have enough free storage",
            "no machine's driver has room for a volume of that size",
            "a smaller volume, or another class: kubectl get csistoragecapacities -A shows what is free",
        ),
        Rule(
            "resource-claim-not-allocated",
            r'resourceclaim "[^"]+" not found|cannot allocate all claims|waiting for resourceclaim'
            r"|resourceclaim\b.*?pending",
            "no machine has the devices that the job's resource claims ask for",
            "kubectl describe resourceclaim says why, kubectl get resourceslices which devices there are; their driver "
            "has to run on the machines",
        ),
        Rule(
            "resource-claim-template-not-found",
            r'FailedResourceClaimCreation\b.*?resourceclaimtemplate\S* "([^"]+)" not found',
            "the ResourceClaimTemplate {0} does not exist",
            "create it in the job's namespace, or correct pod.resourceClaims: the pods continue by themselves",
        ),
        Rule(
            "scheduler-not-responding",
            r"^(?:node \d+: )?(the scheduler (\S+) has said nothing of the pod for \d+ s)$",
            "{0}",
            "see that it runs, and has this name: kubectl get pods -A; scheduling.scheduler names it: left out, it is "
            "the cluster's own",
            seen="the scheduler gpu-binpack has said nothing of the pod for 40 s",
        ),
        Rule(
            "job-parallelism-too-small",
            r"^the \w+'s ((?:parallelism|replicas) is \d+, of \d+ nodes): (\S+) (\{.*\})$",
            "the job's {0}: it waits for the others for good",
            "kubectl patch {1} JOB -n NAMESPACE --type=merge -p '{2}'",
        ),
        Rule(
            "job-controller-not-responding",
            r"^(Kubernetes' Job controller has not touched the Job for \d+ s: .*)$",
            "{0}",
            "see that the cluster's kube-controller-manager runs: kubectl get pods -n kube-system; kubectl get lease "
            "-n kube-system kube-controller-manager -o yaml shows when it last did; the job goes on by itself",
            seen="Kubernetes' Job controller has not touched the Job for 40 s: it has no status and no pods",
        ),
        Rule(
            "operator-not-responding",
            r"^((\S.*) has not touched the (\w+) for \d+ s: it has no status and no pods)$",
            "{0}",
            "see that {1} runs, as the cluster has its kind {2}: kubectl get deployments -A (READY), kubectl logs "
            "of its pod; the job goes on by itself once it does",
            seen="the JobSet controller has not touched the JobSet for 40 s: it has no status and no pods",
        ),
        Rule(
            "cluster-without-nodes",
            r"no nodes available to schedule pods",
            "the cluster has no machine",
            "add machines, or see why those that there were are gone: kubectl get nodes",
        ),
        Rule(
            "pod-group-not-ready",
            r"pod ?group is not ready|gang is not ready|minAvailable|minMember",
            "the pods of the job are started together, and there is no room for all of them yet",
            "fewer or smaller nodes, or wait until other jobs end: kubectl describe podgroup",
        ),
        Rule(
            "claim-not-bound",
            r"unbound immediate PersistentVolumeClaims",
            "a claim of the job has no volume yet",
            "kubectl describe pvc names what its storage class lacks",
        ),
        Rule(
            "volume-node-affinity-conflict",
            r"didn't match PersistentVolume's node affinity|volume node affinity conflict|no available volume zone",
            "a volume of the job is in a zone, or on a machine, where its pods may not run",
            "kubectl describe pv names the zone or machine (Node Affinity): use machines there, by "
            "scheduling.nodeSelector, or a claim whose class makes the volume where the pod is (WaitForFirstConsumer)",
        ),
        Rule(
            "claim-not-found",
            r'persistentvolumeclaim "([^"]+-snapshots)" not found',
            "the claim {0} does not exist",
            "create it, or name one that is there: --claim; if it was made with the job, which is JOB-snapshots, its "
            "snapshots are lost: kitctl submit --name JOB --replace ... makes it anew",
        ),
        Rule(
            "claim-not-found",
            r'persistentvolumeclaim "([^"]+)" not found',
            "the claim {0} does not exist",
            "create it, or name one that is there: --claim",
        ),
        Rule(
            "pod-scheduling-gated",
            r"SchedulingGated: ",
            "",
            "nothing: it starts by itself, and the others do not wait for it; kitctl scale takes it back",
            seen="SchedulingGated: Scheduling is blocked due to non-empty scheduling gates",
            means="a node that was added to a job in a queue waits for quota",
        ),
        Rule(
            "preempted-by-higher-priority",
            r"^Preempted: Preempted by (?:a )?pod \S+ on node ([\w.-]*\w)",
            "a pod of higher priority has taken its place on {0}, and it waits for another",
            "wait until that one ends, add machines, or give the job a higher priority: --priority (kubectl get "
            "priorityclass)",
        ),
        Rule(
            "gpu-taint-not-tolerated",
            r"untolerated taint \{([^}:]*gpu[^}:]*):? ?[^}]*\}.*Insufficient \S*gpu"
            r"|Insufficient \S*gpu.*?untolerated taint \{([^}:]*gpu[^}:]*):? ?[^}]*\}",
            "the machines with GPUs have a taint that the job does not tolerate, and the others have no GPUs",
            "scheduling.tolerations with that taint: kubectl describe nodes shows it, mostly nvidia.com/gpu, "
            "operator: Exists",
            seen="0/5 nodes are available: 3 node(s) had untolerated taint {nvidia.com/gpu: present}, 2 Insufficient "
            "nvidia.com/gpu.",
        ),
        Rule(
            "node-resources-insufficient",
            r"Insufficient ([\w./-]*\w)",
            "no machine has enough free {0}",
            "ask for less, wait until other jobs end, or add machines: kubectl describe nodes shows what is free",
        ),
        # A machine that lacks one of these has the labels, and no taint that is not tolerated: the scheduler looks at
        # those first, and names what each machine lacks first.
        Rule(
            "node-pod-or-volume-limit",
            r"Too many pods|exceed max volume count",
            "the machines that would do have as many pods or volumes as they may",
            "wait until others end, or add machines: kubectl describe nodes shows what they may have (Allocatable)",
        ),
        Rule(
            "pod-affinity-unmatched",
            r"didn't match pod affinity rules",
            "no machine has the pods next to which pod.affinity (podAffinity) wants those of the job",
            "start the pods that it selects, in this namespace or those that it names, or leave it out of pod.affinity",
        ),
        Rule(
            "existing-pods-anti-affinity",
            r"didn't satisfy existing pods anti-affinity rules",
            "pods that run on the machines let none of the job's next to them, by their podAntiAffinity",
            "wait until they end, or choose other machines (scheduling.nodeSelector), or other pod.labels",
        ),
        Rule(
            "topology-label-missing",
            r"topology spread constraints \(missing required label\)",
            "no machine that would do has the label that pod.topologySpread spreads the pods over (topologyKey)",
            "kubectl get nodes --show-labels lists those that there are: name one; or ScheduleAnyway",
        ),
        Rule(
            "spread-unsatisfied-or-node-cordoned",
            r"were unschedulable.*didn't match pod (?:anti-affinity rules|topology spread constraints)"
            r"|didn't match pod (?:anti-affinity rules|topology spread constraints).*were unschedulable",
            "no further machine fits how the pods have to be spread, but perhaps those that are cordoned",
            "kubectl get nodes shows those that are cordoned (SchedulingDisabled), and kubectl uncordon takes it back; "
            "or scheduling.spread: prefer, fewer nodes",
        ),
        Rule(
            "pod-spread-unsatisfied",
            r"didn't match pod anti-affinity rules"
            r"|didn't match pod topology spread constraints",
            "no further machine fits how the pods have to be spread",
            "scheduling.spread: prefer, fewer nodes, or look at pod.affinity and pod.topologySpread",
        ),
        Rule(
            "host-port-in-use",
            r"didn't have free ports",
            "on all machines that would do another pod has the port that the job takes from the machine",
            "leave out hostPort in pod.spec, or pod.hostNetwork; or take other ports (rendezvous.port, metrics.port)",
        ),
        Rule(
            "selector-unmatched-or-node-cordoned",
            r"were unschedulable.*didn't match Pod's node affinity/selector"
            r"|didn't match Pod's node affinity/selector.*were unschedulable",
            "no machine has the labels of scheduling.nodeSelector, but for those that are cordoned or have a taint",
            "kubectl get nodes shows those that are cordoned (SchedulingDisabled), and kubectl uncordon takes it back; "
            "or select others",
        ),
        Rule(
            "selector-unmatched-or-node-tainted",
            r"untolerated taint.*didn't match Pod's node affinity/selector"
            r"|didn't match Pod's node affinity/selector.*untolerated taint",
            "no machine has the labels of scheduling.nodeSelector, or only one with a taint that the job does not "
            "tolerate",
            "kubectl get nodes --show-labels shows which have them; if one has, kubectl describe node shows its taint: "
            "not-ready, unreachable and *-pressure go away with their cause, others take scheduling.tolerations",
        ),
        Rule(
            "node-selector-unmatched",
            r"didn't match Pod's node affinity/selector",
            "no machine has the labels of scheduling.nodeSelector",
            "kubectl get nodes --show-labels lists those that there are",
        ),
        Rule(
            "nodes-cordoned",
            r"were unschedulable",
            "no machine takes another pod: those that would do are cordoned",
            "kubectl get nodes shows those that are cordoned (SchedulingDisabled): kubectl uncordon; or add machines",
        ),
        Rule(
            "node-under-pressure",
            r"untolerated taint \{(node\.kubernetes\.io/(?:disk|memory|pid)-pressure)",
            "the machines that would do are short of disk, memory or processes: {0}",
            "kubectl describe node shows what uses them; crictl rmi --prune frees images' room; the taint goes away "
            "by itself",
        ),
        Rule(
            "node-not-ready",
            r"untolerated taint \{(node\.kubernetes\.io/(?:not-ready|unreachable|network-unavailable)"
            r"|node\.cloudprovider\.kubernetes\.io/\w+)",
            "the machines that would do are not ready: {0}",
            "nothing, if they are new; else kubectl describe node says why: its kubelet, or the network's pods in "
            "kube-system",
        ),
        Rule(
            "taint-not-tolerated",
            r"untolerated taint \{(?!node\.kubernetes\.io/unschedulable)([^}:]+)(?:: ?([^}]*))?\}",
            "all machines that would do have a taint that the job does not tolerate, as {0}",
            "scheduling.tolerations with it, if the job may run there; or other machines: kubectl describe node",
        ),
        Rule(
            "taint-not-tolerated",
            r"had untolerated taint",
            "all machines that would do have a taint that the job does not tolerate",
            "kubectl describe node shows why: not-ready, unreachable and *-pressure go away with their cause; others "
            "take scheduling.tolerations, or other machines",
        ),
        Rule(
            "pod-rejected-by-node",
            r"^\s*(?:node \d+: )?(?:OutOf(?:cpu|memory|pods|ephemeral-storage|\S+/\S+)\b|Unexpected"
            r"AdmissionError|NodeAffinity|TopologyAffinityError|Predicate)\b",
            "the machine has refused the pod: what it has free, or its labels, have changed since the scheduler looked",
            "nothing: its node is started elsewhere; if a machine does so again and again, its device plugin or GPUs "
            "are faulty: kubectl cordon it",
        ),
        Rule(
            "autoscaler-not-scaling-up",
            r"NotTriggerScaleUp\b|didn't trigger scale-up",
            "no machine is free, and the cluster makes none of the kind that the job asks for",
            "ask for what its groups of machines have (nodeSelector, GPUs, size), or have their maximum raised",
        ),
        Rule(
            "queue-missing-or-inactive",
            r"waits in queue ([\w.-]+).*?(?:LocalQueue|ClusterQueue) \S+ (?:doesn't exist|not found|is (?:inactive"
            r"|stopped))",
            "the queue {0} does not exist, or its cluster queue is not active",
            "kubectl get localqueue,clusterqueue lists them: --queue",
        ),
        quoted(
            "queue-has-no-fitting-flavor",
            r"waits in queue ([\w.-]+).*?(?:doesn't match node affinity|untolerated taint|resource \S+ unavailable in "
            r"ClusterQueue)",
            "no flavor of the queue {0} fits what the job asks for: scheduling.nodeSelector, tolerations and resources "
            "of kubectl describe clusterqueue, resourceflavor",
            "waits in queue research: couldn't assign flavors to pod set main: flavor a100 doesn't match node affinity",
        ),
        Rule(
            "queue-without-workload",
            r"waits in queue ([\w.-]+): Kueue has made no Workload of the (\w+) for (\d+) s$",
            "Kueue has made no Workload of the job for {2} s, so the queue {0} knows nothing of it",
            f"{NO_WORKLOAD_FIX}; after a change of that, kubectl annotate {{1}} JOB -n NAMESPACE kitctl.dev/look=1 "
            "has it look at the job again",
        ),
        Rule(
            "queue-admission-pending",
            r"waits in queue ([\w.-]+)",
            "",
            "nothing: it starts when the queue {0} admits it",
            seen="waits in queue research, position 2",
        ),
    ),
    of_ranks=False,
)
