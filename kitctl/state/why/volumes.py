"""Causes in volumes, and in Secrets and ConfigMaps that a pod names. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

VOLUMES: Final = Family(
    "Volumes, Secrets and ConfigMaps",
    "Pending",
    (
        Rule(
            r'FailedMount\b.*?configmap "(kittrain-([^-"]+)-[^"]+)" not found',
            "somebody has deleted the configmap {0}, the trainer that was sent with the job",
            "submit any job in this namespace with kitctl {1}, which sends it again: the pods continue by themselves",
        ),
        Rule(
            r'FailedMount\b.*?(configmap|secret) "([^"]+)" not found',
            "the {0} {1}, which a volume of the job names, does not exist",
            "create it in the job's namespace: the pods continue by themselves",
        ),
        Rule(
            r'CreateContainerConfigError\b.*?(configmap|secret) "([^"]+)" not found',
            "the {0} {1}, which a variable of the job names, does not exist",
            "create it in the job's namespace: the pods continue by themselves",
        ),
        Rule(
            r"couldn't find key (\S+) in (Secret|ConfigMap) [^/\s]+/(\S+)",
            "the {1} {2}, which a variable of the job names, has no key {0}",
            "kubectl describe {1} {2} lists its keys: name one of them, or add it: the pods continue by themselves",
        ),
        Rule(
            r"FailedMount\b.*?references non-existent (secret|config) key: (\S+)",
            "a {0} that a volume of the job names has no key {1}",
            "name a key that it has, or add it: the pods continue by themselves",
        ),
        Rule(
            r"FailedAttachVolume|Multi-Attach error",
            "a volume is attached to another machine, which may take it alone",
            "wait until its pod there has ended, or use a claim that all nodes share (ReadWriteMany)",
        ),
        Rule(r"FailedMount", "", "check the volume in the message, and its server or driver", seen="FailedMount: ..."),
        Rule(
            r"CreateContainerConfigError",
            "",
            "create the Secret or ConfigMap that it names",
            seen="CreateContainerConfigError: ...",
        ),
    ),
    of_ranks=False,
)
