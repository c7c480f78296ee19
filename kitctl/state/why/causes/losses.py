"""Causes in nodes that are lost again and again, or cannot be replaced. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

# What a drained node says of ranks that did not save and end in time, and the fix.
UNHEEDED: Final = r"(?:ignores|took \d+ more steps after) SIGTERM, and was killed after"
TOO_LATE: Final = r"ranks were killed before they had saved and ended"
CUT_SHORT: Final = rf"\brank \d+ {UNHEEDED}|\bits {TOO_LATE}"
_ENDED: Final = "see what ends its nodes, such as a machine's memory; if so many losses are usual: policy.backoffLimit"
LOSSES: Final = Family(
    "Lost nodes",
    "Running",
    (
        Rule(
            "job-deletion-waits-for-pod",
            r"the job is being deleted, and waits for pod (\S+), which its finalizer (\S+) keeps",
            "the job is being deleted, and waits for pod {0}, which its finalizer {1} keeps",
            "it goes once what set {1} releases it (kubectl get pod {0} -n NAMESPACE -o yaml); if that is gone for "
            'good: kubectl patch pod {0} -n NAMESPACE --type=merge -p \'{{"metadata": {{"finalizers": null}}}}\'',
        ),
        Rule(
            "job-kept-by-finalizer",
            r"the job is being deleted, and kept by its finalizer (\S+)",
            "the job is being deleted, and its finalizer {0} keeps it: who set that has not released it",
            "see to what sets {0}; if that is gone for good: kubectl patch the job with metadata.finalizers: null",
        ),
        Rule(
            "node-unreachable",
            r"(machine (\S+) does not answer: .*)",
            "{0}",
            "kubectl describe node {1} shows since when. Its pods are replaced after five minutes, or at once after "
            "kubectl taint node {1} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (only if it is off for "
            "good)",
            seen="machine worker-3 does not answer: its kubelet has stopped, or it is lost",
        ),
        Rule(
            "node-unreachable",
            r"(node \d+, pod (\S+) is lost: its machine has not answered for .*)",
            "{0}",
            "see that machine (kubectl get pod {1} -o wide): once Kubernetes has noticed, after 40 seconds, kitctl why "
            "says how the pod is replaced at once",
            seen="node 1, pod run-1-x7k2p is lost: its machine has not answered for 3 s",
            means="the other nodes have asked it in vain; they go on once it is back, or its pod is replaced",
        ),
        Rule(
            "node-unreachable",
            r"(node (\d+) is lost:.*?its machine does not answer)",
            "{0}",
            "see that machine (HOST of node {1} in kitctl status): once Kubernetes has noticed, after 40 seconds, "
            "kitctl why says how its pod is replaced at once",
            seen="node 0 is lost: its machine does not answer",
            means="the nodes meet there; the next one has taken its place, and they go on once it is back, or its pod "
            "is replaced",
        ),
        Rule(
            "stop-signal-unheeded",
            rf"\b(rank \d+ {UNHEEDED}[^;]*); fix: (.*)",
            "{0}",
            "{1}",
            seen="received a stop signal; rank 1 ignores SIGTERM, and was killed after 55 s; fix: leave out what "
            "ignores it (signal.SIG_IGN), and save and exit at it, within policy.gracePeriod (60s); ...",
            means="its node was drained, as by a preemption, kubectl drain or kitctl suspend",
        ),
        Rule(
            "grace-period-too-short",
            rf"\bits ({TOO_LATE}[^;]*); fix: (.*)",
            "a drained node's {0}",
            "{1}",
            seen="received a stop signal; its ranks were killed before they had saved and ended; fix: a "
            "policy.gracePeriod of more than 60s",
        ),
        Rule(
            "preempted-by-higher-priority",
            r"PreemptionByScheduler",
            "a pod of higher priority takes the place of one of the job's",
            "nothing: it starts again once there is room; or give it a higher priority: --priority",
        ),
        Rule(
            "pod-being-deleted",
            r"^is being deleted$",
            "a pod of the job is being deleted, by a user or a controller",
            "nothing: its node is replaced once it has ended",
        ),
        Rule(
            "pod-evicted-from-node",
            r"EvictionByEvictionAPI|DeletionByTaintManager"
            r"|TerminationByKubelet",
            "a machine gives up the job's pod: it is drained, or about to stop",
            "nothing: its node is replaced on another machine once there is room",
        ),
        Rule(
            "pod-termination-unconfirmed",
            r"termination not confirmed: node (\S+) is unreachable",
            "the machine {0} is off or disconnected, and its pod may still run there",
            "switch it on; only if it is off for good: kubectl taint node {0} "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
            means="two pods of one name could write at once; kubectl delete pod --force does not help an Indexed Job",
        ),
        Rule(
            "pod-replacement-delayed",
            r"has ended, and is replaced once Kubernetes' Job controller notices",
            "",
            "wait; or kitctl submit --replace --resume; or kind: PyTorchJob where pods are often lost",
            seen="has ended, and is replaced once Kubernetes' Job controller notices: up to ten minutes",
            means="after several lost pods that controller waits longer each time (docs/cluster.md)",
        ),
        Rule(
            "agent-restarted-too-often",
            r"was started again in place \d+ times without a new snapshot",
            "",
            "mend what the message begins with, which is how the agent ended; if that is the memory: "
            "resources.limits.memory",
            seen="...; it was started again in place 10 times without a new snapshot",
            means="its pod ends now, and counts against policy.backoffLimit",
        ),
        Rule(
            "backoff-limit-exceeded",
            r"^\s*BackoffLimitExceeded\W+(more than .*)",
            "{0}",
            _ENDED,
            seen="BackoffLimitExceeded: more than 6 nodes were lost; the last, node 1, was killed by signal 9",
        ),
        Rule(
            "backoff-limit-exceeded",
            r"^\s*BackoffLimitExceeded\b",
            "",
            _ENDED,
            seen="BackoffLimitExceeded: Job has reached the specified backoff limit",
        ),
        Rule(
            "agent-or-node-suspended",
            r"is not responding: its agent or its machine is suspended",
            "",
            "check that machine: out of memory, frozen, under a debugger; the node joins again when it goes on",
            seen="node 1 is not responding: its agent or its machine is suspended",
            means="its connections are up, and the others go on without it",
        ),
    ),
    of_ranks=False,
)
