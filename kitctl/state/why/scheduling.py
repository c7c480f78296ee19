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
            r"unbound immediate PersistentVolumeClaims",
            "a claim of the job has no volume yet",
            "kubectl describe pvc names what its storage class lacks",
        ),
        Rule(
            r'persistentvolumeclaim "([^"]+)" not found',
            "the claim {0} does not exist",
            "create it, or name one that is there: --claim",
        ),
        Rule(
            r"Insufficient ([\w./-]+)",
            "no machine has enough free {0}",
            "ask for less, wait until other jobs end, or add machines: kubectl describe nodes shows what is free",
        ),
        Rule(
            r"didn't match Pod's node affinity/selector",
            "no machine has the labels of scheduling.nodeSelector",
            "kubectl get nodes --show-labels lists those that there are",
        ),
        Rule(
            r"had untolerated taint",
            "all machines that would do have a taint that the job does not tolerate",
            "scheduling.tolerations, or other machines",
        ),
        Rule(
            r"waits in queue ([\w.-]+)",
            "",
            "nothing: it starts when the queue {0} admits it",
            seen="waits in queue research, position 2",
        ),
    ),
)
