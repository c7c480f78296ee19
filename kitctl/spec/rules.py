"""The checks that the types of ``spec`` cannot express: one field against another, lengths of names. Pure.

Every rule is a function from a spec to problems; ``problems`` runs all of them, so that all are reported at once.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from kitctl import kinds
from kitctl.base import names
from kitctl.base.errors import Problem
from kitctl.base.quantity import pluralize
from kitctl.spec import limits, pod_rules
from kitjob import variables

if TYPE_CHECKING:
    from kitjob.job_keys import JobKeys

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OWN_LABELS: Final = frozenset(
    {names.LABEL_NAME, names.LABEL_INSTANCE, names.LABEL_COMPONENT, names.LABEL_MANAGED_BY, names.LABEL_VERSION}
)
_OWN_PREFIX: Final = "kitctl.dev/"
_SET_BY: Final = {  # which key of the job sets a label
    names.LABEL_QUEUE: "scheduling.queue",
    names.LABEL_WORKLOAD_PRIORITY: "scheduling.workloadPriorityClass",
}
_VOLUME_SOURCES = ("claim", "configMap", "secret", "emptyDir", "hostPath", "csi")
_MAX_NODES = 100_000  # limit of an Indexed Job
ENDS_ALL: Final = "the job's end, suspend, cancel, restart, a preemption of the whole job"
MIRROR_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def problems(spec: JobKeys) -> Iterator[Problem]:
    """The problems of a spec whose fields have the right types."""
    for rule in RULES:
        yield from rule(spec)


def default_name(spec: JobKeys, suffix: str = "") -> str:
    """A name for a job that has none: after its command, with ``-<suffix>`` if there is one."""
    stem = PurePath(spec.command[0]).stem if spec.script else spec.command[-1].rpartition(".")[2]
    ending = f"-{suffix}" if suffix else ""
    label = re.sub(r"[^a-z0-9]+", "-", stem.lower()).lstrip("-0123456789")
    return (label or "job")[: name_limit(spec) - len(ending)].strip("-") + ending


def name_limit(spec: JobKeys) -> int:
    """The maximum length of the name."""
    return kinds.of_spec(spec.kind).name_limit(spec.all_nodes)


def _kind(spec: JobKeys) -> Iterator[Problem]:
    known = (kinds.AUTO, *kinds.all_kinds()) if spec.kind not in {kinds.AUTO, *kinds.KINDS} else (spec.kind,)
    if spec.kind not in known:
        yield Problem.of("kind", f'"{spec.kind}" is not allowed', f"give one of {', '.join(known)}")


def _nodes(spec: JobKeys) -> Iterator[Problem]:
    if spec.min_nodes < 1:
        yield Problem.of("nodes", f"{spec.nodes} is not a valid node count", "use 1 or more, as in 3 or 2:4")
    elif spec.min_nodes > spec.max_nodes:
        swapped = f"{spec.max_nodes}:{spec.min_nodes}"
        yield Problem.of("nodes", f"{spec.nodes} has a minimum above its maximum", f"write {swapped}")
    elif spec.all_nodes > _MAX_NODES:
        field, given = ("spares", spec.node_range) if spec.spares else ("nodes", spec.nodes)
        yield Problem.of(field, f"{given} is more than a job can have", f"use at most {_MAX_NODES}")


def _procs(spec: JobKeys) -> Iterator[Problem]:
    ranks, field = spec.ranks_by_node, "procsPerNode"
    if not ranks:
        return
    if spec.spares:
        what = "a spare needs as many ranks as the node that it replaces"
        yield Problem.of(field, what, "give one number, or spares: 0")
    elif spec.elastic:
        yield Problem.of(field, "a number for each node needs a fixed number of nodes", "give one number, or nodes: N")
    elif len(ranks) != spec.max_nodes:
        what = f"{spec.procs_per_node} are for {pluralize(len(ranks), 'node')}, not for {spec.max_nodes}"
        yield Problem.of(field, what, "give a number for each node, or one for all")
    if 0 < spec.gpus_per_node < max(ranks):
        what = f"{max(ranks)} ranks are more than {pluralize(spec.gpus_per_node, 'GPU')}"
        yield Problem.of(field, what, f"give at most {spec.gpus_per_node} for each node")


def _name(spec: JobKeys) -> Iterator[Problem]:
    limit = name_limit(spec)
    if not (spec.name or spec.command):
        return  # ``_command`` reports it
    if not _LABEL.fullmatch(spec.name):
        fix = "use lower-case letters, digits and '-', a letter first and no '-' last"
        yield Problem.of("name", f"{spec.name!r} is not a DNS label", fix)
    elif len(spec.name) > limit:
        what = f"{len(spec.name)} characters leave no room for the node index in the host name"
        yield Problem.of("name", what, f"use at most {limit}")
    if not re.fullmatch(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?", spec.namespace):
        yield Problem.of("namespace", f"{spec.namespace!r} is not a DNS label", "use letters, digits and '-'")


def _command(spec: JobKeys) -> Iterator[Problem]:
    if not spec.command:
        yield Problem.of("command", "is empty", 'give ["train.py"] or ["-m", "package.module"], or leave it out')
    elif spec.command[0] == "-m" and len(spec.command) != len(("-m", "module")):
        yield Problem.of("command", "-m takes one module", "put its arguments under args")
    elif spec.command[0].startswith("-") and spec.command[0] != "-m":
        yield Problem.of("command", f"{spec.command[0]} is not supported", "start with a script, or with -m")
    elif not all(spec.command):
        yield Problem.of("command", "has an empty element", "name a script, or a module after -m")


def _environment(spec: JobKeys) -> Iterator[Problem]:
    for field, given in (("env", spec.env), ("secrets", spec.secrets)):
        for name in given:
            if variables.is_reserved(name):
                yield Problem.of(f"{field}.{name}", "is set by the launcher for every rank", "use another name")
    for name in sorted(spec.env.keys() & variables.SWITCHES):
        if spec.env[name] not in {"0", "1"}:
            yield Problem.of(f"env.{name}", "is a switch", "give 0 or 1")
    for name in spec.env.keys() & spec.secrets.keys():
        yield Problem.of(f"secrets.{name}", "is also in env", "keep one of the two")
    for number, source in enumerate(spec.env_from):
        if bool(source.config_map) == bool(source.secret):
            yield Problem.of(f"envFrom[{number}]", "needs one source", "set configMap or secret")


def _volumes(spec: JobKeys) -> Iterator[Problem]:
    taken = {"/dev/shm": "sharedMemory", "/tmp": "scratch space", names.WORKSPACE: "synced files"}  # noqa: S108
    taken[names.SECRET_PATH] = "the run's secret"
    yield from _path("snapshots.path", spec.snapshots.path, taken if spec.snapshots.enabled else {})
    if spec.snapshots.enabled:
        taken[_plain(spec.snapshots.path)] = "snapshots"
    for number, volume in enumerate(spec.volumes):
        field = f"volumes[{number}]"
        sources = (volume.claim, volume.config_map, volume.secret, volume.empty_dir, volume.host_path, volume.csi)
        if sum(map(bool, sources)) != 1:
            yield Problem.of(field, "needs one source", f"set one of {', '.join(_VOLUME_SOURCES)}")
        yield from _path(f"{field}.mountPath", volume.mount_path, taken)
        taken[_plain(volume.mount_path)] = field


def _path(field: str, path: str, taken: Mapping[str, str]) -> Iterator[Problem]:
    """Check a mount path."""
    if not path.startswith("/"):
        yield Problem.of(field, f"{path!r} is relative", "begin it with /")
    elif ":" in path or not path.isprintable():
        yield Problem.of(field, f"{path!r} is not a valid mount path", "leave out ':' and control characters")
    elif _plain(path) == "/":
        yield Problem.of(field, f"{path!r} would hide the image", "use a folder")
    elif owner := taken.get(_plain(path)):
        yield Problem.of(field, f"{path} is used by {owner}", "use another path")


def _plain(path: str) -> str:
    """A normalized path."""
    return posixpath.normpath(path.replace("//", "/"))


def _snapshots(spec: JobKeys) -> Iterator[Problem]:
    if spec.snapshots.shared and spec.all_nodes > 1 and spec.snapshots.access_mode != "ReadWriteMany":
        what = f"{spec.snapshots.access_mode} cannot be mounted by {spec.all_nodes} nodes"
        yield Problem.of("snapshots.accessMode", what, "use ReadWriteMany, nodes: 1, or snapshots.storage: perNode")
    if spec.snapshots.enabled and not spec.snapshots.shared:
        yield from _per_node(spec)
    if spec.resume and not spec.snapshots.enabled:
        yield Problem.of("resume", "needs snapshots", "set snapshots.enabled")
    if spec.snapshots.mirror and not spec.snapshots.enabled:
        yield Problem.of("snapshots.mirror", "needs snapshots", "set snapshots.enabled")
    for name in MIRROR_SECRETS if spec.snapshots.mirror else ():
        if name in spec.env:
            fix = f"give it by secrets ({name}: SECRET/KEY), and on this machine by your shell's environment"
            yield Problem.of(f"env.{name}", "would be written into the job's objects, for all to read", fix)


def _per_node(spec: JobKeys) -> Iterator[Problem]:
    """What needs a folder that all nodes share, and what memory needs."""
    storage = spec.snapshots.storage
    if storage == "memory" and not spec.snapshots.mirror:
        what = f"memory is gone once all pods have ended, and all snapshots with it: {ENDS_ALL}"
        yield Problem.of("snapshots.storage", what, "set snapshots.mirror: s3://BUCKET/PREFIX, or another storage")
    if spec.snapshots.claim:
        what = f"is a folder that all nodes share, and with snapshots.storage: {storage} each has its own"
        yield Problem.of("snapshots.claim", what, "leave it out, or snapshots.storage: claim")
    if spec.snapshots.memory_every_steps:
        what = f"and snapshots.storage: {storage} exclude each other"
        yield Problem.of("snapshots.memoryEverySteps", what, "take snapshots more often: snapshots.everySteps")


def _outputs(spec: JobKeys) -> Iterator[Problem]:
    if not spec.outputs:
        return
    field, what = "outputs", repr(spec.outputs)
    if spec.outputs.startswith("/"):
        fix = "give a path in the working folder, and have the script write there or to $KIT_OUTPUTS_DIR"
        yield Problem.of(field, f"{what} is absolute", fix)
    elif ".." in spec.outputs.split("/") or not spec.outputs.isprintable():
        yield Problem.of(field, f"{what} is not a path in the working folder", "leave out '..' and control characters")
    elif posixpath.normpath(spec.outputs) == ".":
        yield Problem.of(field, f"{what} is the working folder itself", "name a folder in it, as in checkpoints")
    elif spec.command and PurePath(spec.command[0]).is_relative_to(spec.outputs):
        yield Problem.of(field, f"{what} holds the script", "name a folder for what it writes alone")
    if not spec.snapshots.shared:
        fix = "snapshots.storage: claim" if spec.snapshots.enabled else "set snapshots.enabled"
        yield Problem.of(field, "needs the claim for snapshots", fix)


def _requirements(spec: JobKeys) -> Iterator[Problem]:
    given = spec.requirements
    if not given.file and given != type(given)():
        yield Problem.of("requirements.file", "is not given", "name what to install: --requirements requirements.txt")
    if given.no_index and (given.index_url or given.extra_index_urls):
        yield Problem.of("requirements.noIndex", "excludes indexUrl and extraIndexUrls", "give one of the two")
    if len(given.file.splitlines()) > 1 or not all(link and link.isprintable() for link in given.find_links):
        yield Problem.of("requirements.findLinks", "has an empty element or control characters", "give a path or a URL")


def _resources(spec: JobKeys) -> Iterator[Problem]:
    for part, amounts in (("requests", spec.resources.requests), ("limits", spec.resources.limits)):
        if spec.gpu_resource in amounts:
            yield Problem.of(f"resources.{part}.{spec.gpu_resource}", "already set by gpusPerNode", "remove it here")
    if spec.backend == "nccl" and not spec.gpus_per_node:
        yield Problem.of("backend", "nccl needs GPUs", "set gpusPerNode, or backend: gloo")


def _virtual_ranks(spec: JobKeys) -> Iterator[Problem]:
    ranks = spec.max_ranks
    if 0 < spec.virtual_ranks < ranks:
        yield Problem.of("virtualRanks", f"{spec.virtual_ranks} would leave some of {ranks} ranks idle", "use more")


def _tolerations(spec: JobKeys) -> Iterator[Problem]:
    for number, taint in enumerate(spec.scheduling.tolerations):
        field = f"scheduling.tolerations[{number}]"
        if taint.operator == "Exists" and taint.value:
            yield Problem.of(field, f"Exists takes no value, but {taint.value!r} is given", "remove it, or use Equal")
        elif taint.operator == "Equal" and not taint.key:
            yield Problem.of(field, "Equal needs a key", "set one, or tolerate every taint with operator: Exists")


def _metrics(spec: JobKeys) -> Iterator[Problem]:
    if spec.metrics.enabled and spec.metrics.port == spec.rendezvous.port:
        yield Problem.of("metrics.port", f"{spec.metrics.port} is rendezvous.port", "give another port")


def _queue(spec: JobKeys) -> Iterator[Problem]:
    if spec.scheduling.workload_priority_class and not spec.scheduling.queue:
        yield Problem.of("scheduling.workloadPriorityClass", "has no effect without a queue", "set scheduling.queue")
    if spec.scheduling.queue and not kinds.of_spec(spec.kind).in_queues:
        yield Problem.of("scheduling.queue", f"a {spec.kind} cannot wait in a queue", "use another kind, or no queue")


def _labels(spec: JobKeys) -> Iterator[Problem]:
    for section in ("labels", "annotations"):
        for key in getattr(spec, section):
            if key in _SET_BY:
                yield Problem.of(f"{section}.{key}", "is set by kitctl", f"use {_SET_BY[key]}")
            elif key in _OWN_LABELS or key.startswith(_OWN_PREFIX):
                yield Problem.of(f"{section}.{key}", "is reserved by kitctl", "choose another one")


RULES: tuple[Callable[[JobKeys], Iterator[Problem]], ...] = (
    _kind,
    _labels,
    _nodes,
    _procs,
    _name,
    _command,
    _environment,
    limits.texts,
    limits.document,
    limits.numbers,
    limits.times,
    limits.amounts,
    _volumes,
    _snapshots,
    _outputs,
    _requirements,
    _resources,
    _virtual_ranks,
    _tolerations,
    _queue,
    _metrics,
    pod_rules.problems,
)
