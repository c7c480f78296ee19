"""Causes in volumes, and in Secrets and ConfigMaps that a pod names. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import AGAIN, Family, Rule

VOLUMES: Final = Family(
    "Volumes, Secrets and ConfigMaps",
    "Pending",
    (
        Rule(
            "trainer-config-map-deleted",
            r'FailedMount\b.*?configmap "(kittrain-([^-"]+)-[^"]+)" not found',
            "somebody has deleted the configmap {0}, the trainer that was sent with the job",
            "submit any job in this namespace with kitctl {1}, which sends it again: the pods continue by themselves",
        ),
        Rule(
            "job-config-or-secret-deleted",
            r"the (ConfigMap|Secret) (\S+), which was made with the job, is gone: ",
            "the {0} {1} is gone, which was made with the job",
            f"submit it again, which makes it anew: {AGAIN}",
        ),
        Rule(
            "volume-config-or-secret-missing",
            r'FailedMount\b.*?(configmap|secret) "([^"]+)" not found',
            "the {0} {1}, which a volume of the job names, does not exist",
            "create it in the job's namespace: the pods continue by themselves",
        ),
        Rule(
            "variable-config-or-secret-missing",
            r'CreateContainerConfigError\b.*?(configmap|secret) "([^"]+)" not found',
            "the {0} {1}, which a variable of the job names, does not exist",
            "create it in the job's namespace: the pods continue by themselves",
        ),
        Rule(
            "variable-source-key-missing",
            r"couldn't find key (\S+) in (Secret|ConfigMap) [^/\s]+/(\S+)",
            "the {1} {2}, which a variable of the job names, has no key {0}",
            "kubectl describe {1} {2} lists its keys: name one of them, or add it: the pods continue by themselves",
        ),
        Rule(
            "volume-source-key-missing",
            r"FailedMount\b.*?references non-existent (secret|config) key: (\S+)",
            "a {0} that a volume of the job names has no key {1}",
            "name a key that it has, or add it: the pods continue by themselves",
        ),
        Rule(
            "volume-server-unreachable",
            r"FailedMount\b.*?(?:mount\.nfs|nfs)\b.*?(?:timed out|No route to host|Connection refused|not responding)",
            "the volume's NFS server does not answer",
            "check its address and path in the volume, and firewalls between it and the machines (port 2049)",
        ),
        Rule(
            "volume-server-refuses-mount",
            r"FailedMount\b.*?(?:access denied by server|mount\.nfs: .*?(?:Permission denied|No such file))",
            "the volume's NFS server does not let this machine mount that path",
            "check the path, and the server's exports: the machines' addresses have to be in them",
        ),
        Rule(
            "volume-type-unsupported-by-node",
            r"FailedMount\b.*?(?:bad option; for several filesystems|unknown filesystem type"
            r"|mount\.\w+: No such device)",
            "the machine has no program, or no module of its kernel, that mounts such a volume",
            "install nfs-common (nfs-utils, cifs-utils) on the machines, or use another kind of volume",
        ),
        Rule(
            "host-path-check-failed",
            r"FailedMount\b.*?hostPath type check failed: (\S+)",
            "the machine has no such folder: {0}",
            "create it on each machine, or choose machines that have it (scheduling.nodeSelector), or another volume",
        ),
        Rule(
            "volume-driver-not-registered",
            r"FailedMount\b.*?driver name (\S+) not found in the list of registered CSI drivers",
            "the driver {0} of a volume does not run on the machine",
            "see that its DaemonSet runs there, taints included (kubectl get csinode); a new machine needs a minute",
        ),
        Rule(
            "service-account-not-found",
            r"FailedMount\b.*?serviceaccounts? \"([^\"]+)\" not found",
            "the service account {0} does not exist",
            "create it, or leave security.serviceAccount out",
        ),
        Rule(
            "volume-access-denied",
            r"FailedMount\b.*?(?:PermissionDenied|Unauthenticated|AccessDenied|permission denied|403)",
            "the driver may not use what the volume names",
            "give the pods' service account, or the driver's own, the right to that bucket, file system or secret",
        ),
        Rule(
            "kubelet-cache-not-synced",
            r"FailedMount\b.*?failed to sync (configmap|secret) cache",
            "the machine's kubelet has not read a {0} of the pod yet",
            "nothing: it tries again; if it stays, the kubelet does not reach the API server: kubectl describe node",
        ),
        Rule(
            "volume-mount-timeout",
            r"FailedMount\b.*?(?:DeadlineExceeded|timed out waiting for the condition|context deadline exceeded)",
            "a volume cannot be mounted in time",
            "see what its driver says (kubectl logs of its pod on that machine); a volume of many files is slow with "
            "fsGroup: fsGroupChangePolicy: OnRootMismatch",
        ),
        Rule(
            "volume-ownership-change-refused",
            r"FailedMount\b.*?(?:applyFSGroup|lchown|chown)\b",
            "the volume's server does not let the machine change its owner",
            "leave security.fsGroup out, and give the folder to the job's user on the server; or no root_squash there",
        ),
        Rule(
            "node-volume-limit-reached",
            r"FailedAttachVolume\b.*?(?:attachment limit|maximum number of (?:disks|volumes)|AttachmentLimitExceeded)",
            "the machine has as many volumes as it may",
            "use a shared volume (ReadWriteMany), or machines with fewer pods: kubectl cordon it, and kitctl restart",
        ),
        Rule(
            "volume-attach-failed",
            r"FailedAttachVolume|Multi-Attach error",
            "a volume is attached to another machine, which may take it alone",
            "wait until its pod there has ended, or use a claim that all nodes share (ReadWriteMany)",
        ),
        Rule(
            "volume-mount-failed",
            r"FailedMount",
            "",
            "check the volume in the message, and its server or driver",
            seen="FailedMount: ...",
        ),
        Rule(
            "non-root-user-required",
            r"CreateContainerConfigError\b.*?runAsNonRoot",
            "the image runs as root, or as a name, and the pod may only run as another user, by its number",
            "security.runAsUser: 1000 (with a home that it may write), or an image with USER and a number",
        ),
        Rule(
            "root-forbidden-by-pod",
            r"CreateContainerConfigError: container's runAsUser breaks non-root policy",
            "its runAsUser is 0, and the pod forbids root (runAsNonRoot)",
            "leave out its runAsUser: 0 (to own a volume, the pod's fsGroup does without), or let the pod run as root: "
            "security.profile: none",
        ),
        Rule(
            "volume-not-writable",
            r'CreateContainerConfigError\b.*?failed to create subPath directory for volumeMount "([^"]+)"',
            "the claim's volume cannot be written: the folder of it that is mounted as {0} could not be made",
            "see whether it is mounted read-only (kubectl describe pvc, kubectl describe pv), full, or keeps root from "
            "writing (NFS: root_squash); or use another claim: --claim",
        ),
        Rule(
            "container-configuration-invalid",
            r"CreateContainerConfigError",
            "",
            "mend what it names: a Secret, a ConfigMap or a key that is not there, a subPath, or a user",
            seen="CreateContainerConfigError: ...",
        ),
    ),
    of_ranks=False,
)
