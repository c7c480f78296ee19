"""Causes between the start of a node's process and that of its ranks: code, requirements, the run. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import AGAIN, Family, Rule

_REQUIREMENTS: Final = r"the requirements cannot be installed: .*?"
STARTS: Final = Family(
    "Code, requirements and the run",
    "Starting",
    (
        Rule(
            "trainer-version-mismatch",
            r"KIT_SPEC: .*the image's kittrain is (older|newer) than",
            "the image's kittrain is {0} than kitctl, and cannot read what the job asks for",
            "leave out --trainer image, so that kitctl's own travels with the job; or name an image of its version",
        ),
        Rule(
            "init-container-out-of-memory",
            r"init container (\S+) of \S+ failed \(exit code \d+, OOMKilled\)",
            "init container {0} was killed for lack of memory",
            "raise resources.limits.memory of {0} in pod.initContainers; if it has none, the namespace's LimitRange "
            "sets it",
        ),
        Rule(
            "sidecar-out-of-memory",
            r"sidecar (\S+) of \S+ (has ended \d+ times?) \(exit code \d+, OOMKilled\)",
            "sidecar {0} {1}, killed for lack of memory",
            "raise resources.limits.memory of {0} in pod.sidecars; if it has none, the namespace's LimitRange sets it",
        ),
        Rule(
            "init-container-failed",
            r"init container (\S+) of (\S+) failed (\(exit code \d+\).*)",
            "init container {0} failed {2}",
            "kubectl logs {1} -c {0} shows what it said; mend it in pod.initContainers",
        ),
        Rule(
            "sidecar-ended-before-startup",
            r"sidecar (\S+) of (\S+) (has ended \d+ times? \(exit code \d+\).*), and its startup probe has not "
            r"succeeded$",
            "sidecar {0} {2}, and its startup probe has not succeeded",
            "the ranks start after it, and its kubelet kills it where the probe fails too often: kubectl describe pod "
            "{1} shows the probe's answers, kubectl logs {1} -c {0} --previous what it waited for; mend it, or its "
            "startupProbe, in pod.sidecars",
        ),
        Rule(
            "sidecar-ended",
            r"sidecar (\S+) of (\S+) (has ended \d+ times? \(exit code \d+\).*)",
            "sidecar {0} {2}",
            "it is started again, later each time: kubectl logs {1} -c {0} --previous shows what it said; mend it in "
            "pod.sidecars (what only prepares the node belongs in pod.initContainers)",
        ),
        Rule(
            "sidecar-startup-probe-pending",
            r"(sidecar (\S+) runs for \d+ s, and its startup probe has not succeeded)",
            "{0}",
            "the ranks start after it: see what it waits for (kubectl logs, -c {1}), or mend its startupProbe in "
            "pod.sidecars",
            seen="sidecar proxy runs for 40 s, and its startup probe has not succeeded",
        ),
        Rule(
            "requirements-conflict-with-image",
            _REQUIREMENTS + r"The user requested (([\w.-]+)\S*?)[;,\s](?:.*?[;\s])?"
            r"The user requested \(constraint\) \2==([^\s;]+)",
            "the requirements cannot be installed: they name {0}, and {1} {2} is there, which stays",
            "ask for a {1} that {2} satisfies, or leave it out; or use an image with another one",
            local="ask for a {1} that {2} satisfies, or leave it out; or name an interpreter that has another one: "
            "--python",
            seen="the requirements cannot be installed: Cannot install numpy==1.23.5 because these package versions "
            "have conflicting dependencies; The conflict is caused by: The user requested numpy==1.23.5; The user "
            "requested (constraint) numpy==2.4.6; torch and what belongs to it stay as they are in the image",
        ),
        Rule(
            "requirements-conflict-with-image",
            _REQUIREMENTS + r"stay as they are in the image",
            "",
            "loosen that requirement, or use another image",
            local="loosen that requirement, or name an interpreter with another torch: --python",
            seen="the requirements cannot be installed: ...; torch and what belongs to it stay as they are in the "
            "image",
            means="a requirement needs another torch than there is",
        ),
        Rule(
            "package-index-not-trusted",
            _REQUIREMENTS + r"[Tt]he repository located at (\S+) is not a trusted or secure host",
            "the requirements cannot be installed: pip ignores the index at {0}, which is asked by HTTP",
            "name it by HTTPS: --index-url; or have pip trust it: --env PIP_TRUSTED_HOST={0}",
        ),
        Rule(
            "package-index-unreachable",
            _REQUIREMENTS + r"(?:connection broken by|Max retries exceeded|timed out|Could not fetch URL|Temporary "
            r"failure|Connection\w*Error)",
            "",
            "nothing, if that passes: the node tries again; else name an index that it reaches, by --index-url, or "
            "send wheels: --find-links DIR --no-index",
            seen="the requirements cannot be installed: connection broken by ...",
            means="the package index does not answer",
        ),
        Rule(
            "requirements-not-installable",
            r"the requirements cannot be installed|No matching distribution found for (\S+)",
            "",
            "correct the name or the version: pip index versions NAME lists those that there are",
            seen="the requirements cannot be installed: No matching distribution found for ...",
            means="no index and no folder of --find-links has such a version, or the nodes reach no index",
        ),
        Rule(
            "agent-cannot-run",
            r"its agent ended with exit code \d+: (.*?)(?:; started \d+ times in a row)?$",
            "the agent cannot run: {0}",
            "that is before the script: mend the image's Python, or what the job sets for it (PYTHONHOME, PYTHONPATH, "
            "LD_LIBRARY_PATH); or name another --image",
            local="that is before the script: mend this Python, or what the environment sets for it (PYTHONHOME, "
            "PYTHONPATH, LD_LIBRARY_PATH); or name another one: --python",
        ),
        Rule(
            "state-disk-full",
            r"^no room is left on the disk of (\S.*)$",
            "no room is left on the disk of {0}, where the job's state and snapshots are",
            "make room there: the job then goes on by itself; of an ended one kitctl delete --snapshots frees some",
        ),
        Rule(
            "state-disk-read-only",
            r"^the disk of (\S.*) is read-only$",
            "the disk of {0}, where the job's state and snapshots are, is read-only",
            "see why (dmesg shows a disk's errors), and mount it for writing: the job then goes on by itself",
        ),
        Rule(
            "torch-library-not-mappable",
            r"torch cannot be imported: (.*failed to map segment.*)",
            "torch cannot be imported: {0}",
            "raise resources.limits.memory; else the volume that has torch is mounted noexec",
            local="raise the limit of memory under which kitctl submit runs (ulimit -v); else the disk that has torch "
            "is mounted noexec",
        ),
        Rule(
            "torch-import-failed",
            r"torch cannot be imported: (.*)",
            "torch cannot be imported: {0}",
            "choose another image, or leave out what the job sets for its libraries (LD_LIBRARY_PATH, LD_PRELOAD)",
            local="install it anew, or name a Python that has it: --python; and see what the environment sets for its "
            "libraries (LD_LIBRARY_PATH, LD_PRELOAD)",
        ),
        Rule(
            "torch-without-distributed",
            r"(torch \S+ is built without torch\.distributed)",
            "{0}",
            "choose an image whose torch has it, such as PyTorch's own",
            local="name a Python whose torch has it: --python",
            seen="torch 2.9.1 is built without torch.distributed",
        ),
        Rule(
            "run-secret-missing",
            r"this run has no secret",
            "",
            "submit it with kitctl, or fill the job's Secret (docs/security.md); security.rendezvousSecret: true goes "
            "on without one",
            seen="rendezvousSecret: require: this run has no secret: ...",
            means="nothing has filled the job's Secret: a right is missing, or security.reportStatus is false in "
            "rendered manifests",
        ),
        Rule(
            "run-already-finished",
            r"run \S+ has already finished; if this is a new run",
            "",
            "as the message says (docs/decisions/0029-run-id.md)",
            seen="run ... has already finished; if this is a new run, ...",
            means="rendered manifests were applied again, and the pods may not look at their job",
        ),
        Rule(
            "cpu-throttled-by-limit-range",
            r"^(?:node \d+: )?the CPU limit ([\w.]+) has left it (\S+ s of a processor in \d+ s); the namespace's "
            r"LimitRange sets it$",
            "a node starts slowly: the CPU limit {0} of the namespace's LimitRange has left it {1}",
            "give a limit of your own, up to the maximum that kubectl describe limitrange shows: resources.limits.cpu",
        ),
        Rule(
            "cpu-throttled-by-limit",
            r"^(?:node \d+: )?the CPU limit ([\w.]+) has left it (\S+ s of a processor in \d+ s)$",
            "a node starts slowly: the CPU limit {0} has left it {1}",
            "raise resources.limits.cpu, or leave it out and give a request alone: --cpu",
        ),
        Rule(
            "rendezvous-hub-ended",
            r"the rendezvous hub process has exited",
            "",
            "kitctl logs with --node 0 shows its error: too little memory for the agent (resources.limits.memory), or "
            "a bug of kitctl, which please report",
            seen="the rendezvous hub process has exited",
            means="nodes meet there: node 0's agent starts it again",
        ),
        Rule(
            "job-service-deleted",
            r"^(?:node \d+: )?the Service (\S+) is gone: (node \d+) cannot resolve node 0's name (\S+)$",
            "the job's Service {0} is gone, and {1} cannot resolve node 0's name {2}",
            f"submit it again, which makes the Service anew: {AGAIN}",
        ),
        Rule(
            "job-status-deleted",
            r"^the ConfigMap (\S+) is gone: nothing is known of the job's progress, which may go on$",
            "the ConfigMap {0} that the job reports to is gone: nothing is known of its progress, and it may train on",
            "kitctl resume JOB makes it anew, and the job reports again within seconds; kitctl logs JOB shows "
            "whether it trains",
        ),
        Rule(
            "job-secret-deleted",
            r"^(?:node \d+: )?the Secret (\S+) is gone: (node 0 has .*)$",
            "the job's Secret {0} is gone: {1}",
            f"submit it again, which makes the Secret anew: {AGAIN}",
        ),
        Rule(
            "job-secrets-differ",
            r"waiting for the rendezvous of this run at \S+ \((node 0 has (?:the run's|no) secret, and this node has .*"
            r"|the other end does not know this run's secret: .*)\)$",
            "a node's secret is not that of node 0: {0}",
            "kitctl restart JOB has all nodes read one; if the Secret JOB-rendezvous is gone, submit it again, which "
            f"makes it anew: {AGAIN}",
        ),
        Rule(
            "rendezvous-host-not-resolved",
            r"^(node \d+) is waiting for node 0 at (\S+):\d+ \(\[Errno -\d+\] ",
            "{0} cannot resolve node 0's name {1}",
            "leave out dnsPolicy and dnsConfig of pod.spec, which ask another DNS than the cluster's; see that this "
            "(CoreDNS) answers, for the domain that is rendezvous.clusterDomain, and that network policies let pods "
            "ask it (egress to port 53)",
            seen="node 1 is waiting for node 0 at run-0.run.team.svc.cluster.local:29400 ([Errno -2] ...",
            means="its pod runs, and has a name",
        ),
        Rule(
            "rendezvous-host-unreachable",
            r"^(node \d+) is waiting for (node 0 at \S+) \((?:timed out|\[Errno \d+\] )",
            "{0} cannot connect to {1}",
            "let the job's pods connect to each other: see the namespace's network policies, a service mesh "
            "(sidecar.istio.io/inject: 'false' in pod.labels), and firewalls between the machines",
            seen="node 1 is waiting for node 0 at run-0.run.team.svc.cluster.local:29400 (timed out)",
            means="its pod runs, and packets to it are dropped",
        ),
    ),
    of_ranks=False,
)
