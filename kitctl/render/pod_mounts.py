"""The volumes of a job's pods, and where they are mounted. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

import kitctl
from kitctl.base import names
from kitctl.code.code_tree import SentFolder, Sources
from kitctl.code.trainer_package import TrainerPackage
from kitctl.render import environment
from kitctl.spec.job_spec import JobSpec
from kitjob.sections import Volume

TRAINER: Final = "trainer"  # the volume's name
UNPACKED: Final = {"medium": "Memory", "sizeLimit": "32Mi"}  # five times what it needs


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of the pods, and where it is mounted."""

    name: str
    path: str
    kind: str  # of volume: emptyDir, configMap, ...
    source: Mapping[str, Any]
    read_only: bool = False
    sub_path: str = ""


def source_key(path: str) -> str:
    """A ConfigMap's key for a file: its path if that is a valid key, else a similar, unique one."""
    key = re.sub(r"[^-._a-zA-Z0-9]", "_", path)
    return key if key == path else f"{key}.{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def mounts(spec: JobSpec, sources: Sources, *, standalone: bool) -> list[Mount]:
    """All mounts of a job's pods; a volume may be mounted in several places."""
    return [
        *_own(spec),
        *_trainer(spec, sources, standalone=standalone),
        *_files(spec, sources),
        *_requirements(spec, sources),
        *(_volume(number, volume) for number, volume in enumerate(spec.volumes)),
    ]


def claim(spec: JobSpec) -> str:
    """Name of the claim for snapshots."""
    return spec.snapshots.claim or names.snapshots_name(spec.name)


def _own(spec: JobSpec) -> list[Mount]:
    shm = {"medium": "Memory", "sizeLimit": spec.shared_memory}
    mounts = [Mount(name="shm", path="/dev/shm", kind="emptyDir", source=shm)]  # noqa: S108 - in the pod
    if spec.security.profile == "restricted" and spec.security.read_only_root:
        mounts.append(Mount(name="tmp", path="/tmp", kind="emptyDir", source={}))  # noqa: S108 - likewise
    if environment.has_secret(spec):
        source = {"secretName": names.secret_name(spec.name), "optional": True}
        mounts.append(Mount(name="secret", path=names.SECRET_PATH, kind="secret", source=source, read_only=True))
    if spec.snapshots.enabled:
        mounts.append(_snapshots(spec))
    return mounts


def trainer(spec: JobSpec, sent: TrainerPackage, *, standalone: bool) -> dict[str, Mapping[str, str]]:
    """The ``binaryData`` of the ConfigMaps with the trainer, by name: the job's own, or one that all jobs share."""
    first, second = sent.binary_data
    if standalone:
        return dict(zip(names.trainer_names(spec.name), (first, second), strict=True))
    return {names.shared_trainer_name(kitctl.__version__, sent.digest): first | second}


def _trainer(spec: JobSpec, sources: Sources, *, standalone: bool) -> Iterator[Mount]:
    """The trainer: the job's own, or what kitctl has all jobs of its version and namespace share.

    And memory to unpack it to: five hundred small files take a tenth to half of a second on some nodes' disks.
    """
    if sources.trainer:
        found = [{"configMap": {"name": name}} for name in trainer(spec, sources.trainer, standalone=standalone)]
        yield Mount(name=TRAINER, path=names.TRAINER_PATH, kind="projected", source={"sources": found}, read_only=True)
        yield Mount(name="unpacked", path=names.UNPACKED_PATH, kind="emptyDir", source=UNPACKED)


def _files(spec: JobSpec, sources: Sources) -> Iterator[Mount]:
    if sources.files:
        items = [{"key": source_key(path), "path": path} for path in sources.files]
        files = {"name": names.sources_name(spec.name), "items": items}
        yield Mount(name="sources", path=names.WORKSPACE, kind="configMap", source=files, read_only=True)
    if sources.workdir:
        yield Mount(name="workspace", path=names.WORKSPACE, kind="emptyDir", source={})
        source = {"name": names.sources_name(spec.name)}
        place = Mount(name="sources", path=names.CODE_PATH, kind="configMap", source=source)
        yield _sent(spec, sources.workdir, place)


def _requirements(spec: JobSpec, sources: Sources) -> Iterator[Mount]:
    """The requirements; they are installed among the job's snapshots, where no other job's ranks can write."""
    if sources.requirements is None:
        return
    source = {"name": names.requirements_name(spec.name)}
    place = Mount(name="requirements", path=names.REQUIREMENTS_PATH, kind="configMap", source=source)
    yield _sent(spec, sources.requirements, place)


def _snapshots(spec: JobSpec) -> Mount:
    if spec.snapshots.in_memory:
        memory = {"medium": "Memory", "sizeLimit": spec.snapshots.size}
        return Mount(name="snapshots", path=spec.snapshots.path, kind="emptyDir", source=memory)
    if not spec.snapshots.shared:
        return Mount(name="snapshots", path=spec.snapshots.path, kind="ephemeral", source=_own_volume(spec))
    return Mount(
        name="snapshots",
        path=spec.snapshots.path,
        kind="persistentVolumeClaim",
        source={"claimName": claim(spec)},
        sub_path=spec.name if spec.snapshots.claim else "",  # other jobs may use an existing claim, too
    )


def _own_volume(spec: JobSpec) -> Mapping[str, Any]:
    """A claim that Kubernetes makes for each pod, and deletes with it."""
    wanted: dict[str, Any] = {"accessModes": ["ReadWriteOnce"]}
    if spec.snapshots.storage_class:
        wanted["storageClassName"] = spec.snapshots.storage_class
    wanted["resources"] = {"requests": {"storage": spec.snapshots.size}}
    return {"volumeClaimTemplate": {"spec": wanted}}


def _sent(spec: JobSpec, sent: SentFolder, place: Mount) -> Mount:
    """Where the pods find a folder that was sent, packed: in a ConfigMap, or on the claim for all of its jobs."""
    if sent.archive is None:
        return replace(_snapshots(spec), path=place.path, sub_path=names.CODE_SUB_PATH, read_only=True)
    return replace(place, read_only=True)


def _volume(number: int, volume: Volume) -> Mount:
    sources = (  # exactly one is given: ``rules`` checks that
        ("persistentVolumeClaim", "claimName", volume.claim),
        ("configMap", "name", volume.config_map),
        ("secret", "secretName", volume.secret),
        ("emptyDir", "sizeLimit", volume.empty_dir),
        ("hostPath", "path", volume.host_path),
    )
    found = ((kind, {key: given}) for kind, key, given in sources if given)
    kind, source = next(found, ("csi", volume.csi))
    return Mount(name=f"volume-{number}", path=volume.mount_path, kind=kind, source=source, read_only=volume.read_only)
