"""What was likely meant by a command or an option that there is not: by meaning first, then by letters.

The one place for the words of kubectl, docker, Slurm and shells: ``WORDS`` for commands, ``OPTIONS`` for options.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

_ALIKE: Final = 0.7  # of 1: below, words look alike by chance
_NEVER_BY_CHANCE: Final = {"drill": 0.85}  # kill, krill, thrill

# By what is to be done, the words for it that other tools have. A word that is a command of kitctl is never looked up.
WORDS: Final[Mapping[str, str]] = {
    "submit": "run launch create apply start sbatch srun torchrun train exec-job go deploy",
    "list": "ls get jobs ps squeue all",
    "status": "describe show info inspect state progress nodes ranks stat",
    "status -w": "watch monitor dashboard sinfo",
    "top": "usage htop nvidia-smi resources cpu memory gpu metrics",
    "logs": "log tail attach stream output print cat",
    "why": "explain reason cause diagnose troubleshoot failures",
    "doctor": "debug check health",
    "exec": "ssh shell sh bash rsh enter console",
    "port-forward": "forward portforward tunnel proxy",
    "stacks": "stack py-spy pystack backtrace threads traceback dump jstack",
    "profile": "trace profiler perf nsys",
    "events": "event history timeline",
    "goodput": "ettr efficiency utilization accounting sacct",
    "plot": "graph chart draw curve curves tensorboard",
    "report": "html summary",
    "bundle": "support must-gather sosreport bugreport diagnostics",
    "wait": "join await poll",
    "cancel delete": "kill stop abort terminate end quit scancel halt interrupt",
    "delete": "rm remove del destroy erase clean cleanup purge uninstall",
    "suspend": "pause hold freeze drain preempt",
    "resume": "unpause continue unsuspend unfreeze release",
    "restart": "retry rerun requeue resubmit reset rollout",
    "scale": "resize grow shrink nodes-set autoscale elastic",
    "snapshots": "checkpoints checkpoint ckpt snapshot snap backup restore export prune",
    "audit": "prove verify ledger samples",
    "render": "template manifest manifests yaml generate dry-run dryrun plan",
    "init": "new scaffold example workload workloads",
    "upload": "push sync send cp copy rsync",
    "drill": "chaos fault inject crash simulate",
    "config": "settings configure configuration profile profiles preferences options",
    "schema": "keys fields",
    "version": "about",
    "completion": "completions autocomplete",
}

# By option, other tools' names for it. Spellings that are accepted are in ``kitctl.cli.command``.
OPTIONS: Final[Mapping[str, str]] = {
    "gpus-per-node": "gpus gpu ngpus num-gpus n-gpus gres gpus-per-task gpus-per-worker accelerators devices",
    "nodes": "workers replicas num-workers parallelism machines num-machines min-nodes max-nodes hosts n size",
    "procs-per-node": "ranks num-processes nprocs world-size processes procs tasks-per-node ranks-per-node ntasks",
    "memory": "ram mem-per-node memory-limit memory-request",
    "cpu": "cpus-per-task cpus-per-node cpu-limit cores",
    "shm": "shm-size shmem ipc",
    "image": "container docker docker-image container-image img",
    "workdir": "cwd chdir dir directory wd working-dir source src code project",
    "outputs": "output-dir out out-dir results",
    "send": "files file-mounts include-files sync upload",
    "requirements": "packages pip reqs deps dependencies pip-install",
    "env": "environment envs export set-env environ",
    "env-file": "envfile dotenv",
    "secret": "secrets secret-env",
    "volume": "mount mounts volumes bind v",
    "deadline": "time walltime time-limit max-time active-deadline-seconds max-runtime",
    "ttl": "ttl-seconds-after-finished cleanup-after",
    "max-restarts": "retries max-retries max-failures backoff-limit restarts",
    "grace-period": "termination-grace-period grace",
    "hang-timeout": "nccl-timeout watchdog heartbeat-timeout",
    "queue": "partition local-queue queue-name",
    "queue-priority": "qos",
    "priority": "priority-class-name",
    "snapshot-every": "checkpoint-every save-every save-steps checkpoint-interval ckpt-every save-interval",
    "keep": "keep-last save-total-limit max-checkpoints",
    "resume": "continue restore from-checkpoint auto-resume",
    "from-scratch": "fresh no-resume restart",
    "storage": "disk storage-size",
    "kind": "job-kind type scheduler launcher",
    "interface": "nic ifname network-interface socket-ifname",
    "python": "interpreter venv conda",
    "namespace": "ns",
    "all-namespaces": "all a all-ns",
    "target": "where cluster local",
    "dry-run": "dryrun plan simulate check preview validate print",
    "replace": "force overwrite recreate",
    "follow": "stream tail logs f attach interactive",
    "wait": "block sync foreground",
    "detach": "background async d no-wait",
    "timeout": "wait-timeout max-wait",
    "tail": "lines last n",
    "since": "after from last-time",
    "include": "grep filter match",
    "exclude": "invert-match ignore",
    "timestamps": "time times date t",
    "watch": "w live follow refresh",
    "output": "format json yaml wide",
    "yes": "force assume-yes no-confirm confirm",
    "rank": "ranks",
    "node": "pod host",
    "fault": "type failure kind",
}


def of_command(word: str, known: Mapping[str, str]) -> str:
    """A sentence that names the command that was likely meant.

    Args:
        word: what was given.
        known: the commands, each with what it does.
    """
    candidates = {alias: meant for meant, aliases in WORDS.items() for alias in aliases.split()}
    lower = word.lower()
    near = [lower] if lower in candidates else get_close_matches(lower, [*known, *candidates], 1, _ALIKE)
    if not near or (near[0] in known and not get_close_matches(lower, near, 1, _NEVER_BY_CHANCE.get(near[0], _ALIKE))):
        return "see kitctl --help"
    names = [near[0]] if near[0] in known else _commands(candidates[near[0]])
    return f"did you mean {' or '.join(_described(name, known) for name in names)}?"


def _commands(meant: str) -> list[str]:
    return [meant] if " -" in meant else meant.split()


def _described(name: str, known: Mapping[str, str]) -> str:
    does = known.get(name.split(maxsplit=1)[0], "")
    return f"{name} ({does[:1].lower()}{does[1:]})" if does else name


def of_option(spelling: str, known: Collection[str]) -> list[str]:
    """The long options that were likely meant.

    Args:
        spelling: what was given, as ``--gpus``.
        known: the command's own, likewise.
    """
    name = spelling.lstrip("-").replace("_", "-").lower()
    meant = [option for option, aliases in OPTIONS.items() if f"--{option}" in known and name in aliases.split()]
    if meant:
        return [f"--{option}" for option in meant]
    aliases = {alias: f"--{option}" for option, others in OPTIONS.items() for alias in others.split()}
    shown = {one.removeprefix("--"): one for one in known if one.startswith("--")}
    own = {alias: option for alias, option in aliases.items() if option in known} | shown
    return [own[one] for one in get_close_matches(name, own, 1, _ALIKE)]
