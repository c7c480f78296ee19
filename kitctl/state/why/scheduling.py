"""Causes in scheduling, quota and admission. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

SCHEDULING: Final = Family(
    "Scheduling and quota",
    "Pending",
    (
        Rule(
            r"exceeded quota: ([\w.-]+)",
            "the namespace's quota {0} is used up",
            "end other jobs, ask for less, or have it raised: kubectl describe quota {0}",
        ),
        Rule(
            r"violates PodSecurity",
            "",
            "leave out what the message names, or use a namespace of another Pod Security level (docs/fabrics.md)",
            seen="violates PodSecurity restricted:latest: ...",
        ),
        Rule(
            r"claim (\S+) has no volume: ExternalProvisioning\b.*?external provisioner '([^']+)'",
            "the claim {0} has no volume: nothing has made one, which {1} should do",
            "see that the driver {1} runs in the cluster, or name another class of kubectl get storageclass: "
            "--storage-class",
        ),
        Rule(
            r"claim (\S+) has no volume: FailedBinding\b.*?(?:no persistent volumes available|no storage class is set)",
            "the claim {0} has no volume: it names no storage class that makes one, and none that is free fits",
            "name a class that makes volumes (kubectl get storageclass): --storage-class; or another claim: --claim",
        ),
        Rule(
            r"(claim \S+ has no volume): (.*)",
            "{0}: {1}",
            "mend what the message says of its storage class, or name another: --storage-class, or --claim",
            seen="claim run-snapshots has no volume: ProvisioningFailed: ...",
        ),
        Rule(
            r"unbound immediate PersistentVolumeClaims",
            "a claim of the job has no volume yet",
            "kubectl describe pvc names what its storage class lacks",
        ),
        Rule(
            r"didn't match PersistentVolume's node affinity|volume node affinity conflict|no available volume zone",
            "a volume of the job is in a zone, or on a machine, where its pods may not run",
            "kubectl describe pv names the zone or machine (Node Affinity): use machines there, by "
            "scheduling.nodeSelector, or a claim whose class makes the volume where the pod is (WaitForFirstConsumer)",
        ),
        Rule(
            r'persistentvolumeclaim "([^"]+)" not found',
            "the claim {0} does not exist",
            "create it, or name one that is there: --claim",
        ),
        Rule(
            r"SchedulingGated: ",
            "",
            "nothing: it starts by itself, and the others do not wait for it; kitctl scale takes it back",
            seen="SchedulingGated: Scheduling is blocked due to non-empty scheduling gates",
            means="a node that was added to a job in a queue waits for quota",
        ),
        Rule(
            r"^Preempted: Preempted by (?:a )?pod \S+ on node ([\w.-]*\w)",
            "a pod of higher priority has taken its place on {0}, and it waits for another",
            "wait until that one ends, add machines, or give the job a higher priority: --priority (kubectl get "
            "priorityclass)",
        ),
        Rule(
            r"Insufficient ([\w./-]*\w)",
            "no machine has enough free {0}",
            "ask for less, wait until other jobs end, or add machines: kubectl describe nodes shows what is free",
        ),
        Rule(
            r"were unschedulable.*didn't match Pod's node affinity/selector"
            r"|didn't match Pod's node affinity/selector.*were unschedulable",
            "no machine has the labels of scheduling.nodeSelector, but for those that are cordoned or have a taint",
            "kubectl get nodes shows those that are cordoned (SchedulingDisabled), and kubectl uncordon takes it back; "
            "or select others",
        ),
        Rule(
            r"untolerated taint.*didn't match Pod's node affinity/selector"
            r"|didn't match Pod's node affinity/selector.*untolerated taint",
            "no machine has the labels of scheduling.nodeSelector, or only one with a taint that the job does not "
            "tolerate",
            "kubectl get nodes --show-labels shows which have them; if one has, kubectl describe node shows its taint: "
            "not-ready, unreachable and *-pressure go away with their cause, others take scheduling.tolerations",
        ),
        Rule(
            r"didn't match Pod's node affinity/selector",
            "no machine has the labels of scheduling.nodeSelector",
            "kubectl get nodes --show-labels lists those that there are",
        ),
        Rule(
            r"didn't (?:match pod|satisfy existing pods) (?:anti-)?affinity rules"
            r"|didn't match pod topology spread constraints",
            "no further machine fits how the pods have to be spread, or kept together",
            "scheduling.spread: prefer, fewer nodes, or look at pod.affinity and pod.topologySpread",
        ),
        Rule(
            r"didn't have free ports",
            "on all machines another pod has the port that the job takes from the machine",
            "another rendezvous.port and metrics.port, or leave out pod.hostNetwork",
        ),
        Rule(
            r"were unschedulable|Too many pods|exceed max volume count",
            "no machine takes another pod: they are cordoned, or have as many pods or volumes as they may",
            "kubectl get nodes shows those that are cordoned (SchedulingDisabled): kubectl uncordon; or add machines",
        ),
        Rule(
            r"had untolerated taint",
            "all machines that would do have a taint that the job does not tolerate",
            "kubectl describe node shows why: not-ready, unreachable and *-pressure go away with their cause; others "
            "take scheduling.tolerations, or other machines",
        ),
        Rule(
            r"waits in queue ([\w.-]+)",
            "",
            "nothing: it starts when the queue {0} admits it",
            seen="waits in queue research, position 2",
        ),
    ),
    of_ranks=False,
)
