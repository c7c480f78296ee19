"""Sends folders that are too large for a ConfigMap to the job's claim, before the job is released.

A helper pod says which files the store on the claim lacks, and receives these. So of a folder that was sent before,
only what has changed is sent; files of other jobs stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from kitctl.base import names
from kitctl.base.errors import Forbidden, UsageError
from kitctl.base.quantity import format_bytes
from kitctl.code.code_tree import ARCHIVE_LIMIT, SentFolder
from kitctl.code.workdir.reading import content, largest
from kitctl.code.workdir.summary import sent
from kitctl.spec.job_spec import JobSpec
from kitctl.targets import Change, Submission
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read.existing import create_or_find, name_conflict
from kitctl.targets.cluster.submit import helper_pod, preflight

T = TypeVar("T", Mapping[str, Any], Mapping[str, Any] | None)

# Where the helper pod has the store, as the pods have it: by the field of the job that is sent.
MOUNTED: Final = {"workdir": names.CODE_PATH, "requirements": names.REQUIREMENTS_PATH}
CONFIG_MAPS: Final = {"workdir": names.sources_name, "requirements": names.requirements_name}
SMALLER: Final = {
    "workdir": "list what training does not need in .kitignore",
    "requirements": "put the wheels on a volume, and give their path there: --find-links /data/wheels",
}
PIECE_BYTES: Final = 1 << 18


def check(api: Api, spec: JobSpec, sent: SentFolder) -> None:
    """Raise an error for a folder that could not be sent.

    Raises:
        UsageError: it is too large for a ConfigMap, and the job has no claim.
        Forbidden: it is too large for a ConfigMap, and this user may not send it to the claim.
    """
    if sent.archive is not None:
        return
    sizes = {path: file.size for path, file in sent.tree.files.items()}
    what = f"{sent.key}: {format_bytes(sent.tree.size)} of {sent.folder} are more than a ConfigMap can have"
    what += f" ({ARCHIVE_LIMIT // 1024} KiB, packed); the largest files: {largest(sizes)}"
    if not spec.snapshots.shared:
        fix = f"{SMALLER[sent.key]}, or let the job have a claim: snapshots.enabled and snapshots.storage, --claim"
        raise UsageError(f"{what}. The job has no claim that it could be sent to", fix=fix)
    if not preflight.permissions(api, spec.namespace).may_run_commands:
        fix = f"ask for create of pods and pods/exec, or {SMALLER[sent.key]}"
        raise Forbidden(f"{what}. You may not send it to the job's claim", fix=fix)


def send(
    api: Api,
    job: Object,
    folders: Sequence[SentFolder],
    notify: Callable[[str], None],
    trainer: Object | None = None,
) -> None:
    """Send the files that the claim lacks, and report how much that is; small folders are in ConfigMaps already.

    Args:
        api: the server.
        job: as ``helper_pod.running`` takes it, and ``trainer`` as well.
        folders: what is sent.
        notify: gets a line for each.
        trainer: see ``job``.

    Raises:
        KitError: it could not be sent, or a folder has changed.
    """
    large = [one for one in folders if one.archive is None]
    for one in folders:
        if one.archive is not None:
            notify(sent(one, f"ConfigMap {CONFIG_MAPS[one.key](job['metadata']['name'])}"))
    if large:
        with helper_pod.running(api, job, trainer) as run:
            for one in large:
                notify(_send(run, one, helper_pod.claim_of(job)))


def _send(run: helper_pod.RunCommand, folder: SentFolder, claim: str) -> str:
    """Send a folder to the claim that a helper pod has mounted; returns what was sent, in a line."""
    from kitctl.code.workdir.archive import tar_pieces  # noqa: PLC0415 - few jobs need it

    tree = folder.tree
    store = (names.CODE_STORE, MOUNTED[folder.key])
    sizes = {file.sha256: file.size for file in tree.files.values()}
    missing = b"".join(run((*store, "missing"), [json.dumps(sizes).encode() + b"\n"])).decode().split()
    b"".join(run((*store, "receive"), _frames(tar_pieces(tree, missing, partial(content, folder)))))
    line = sent(folder, f"claim {claim}")
    size = format_bytes(sum(sizes[digest] for digest in missing))
    had = f"the claim had all but {len(missing)} of them ({size})" if missing else "the claim had all of them"
    return line if len(missing) == len(sizes) else f"{line}; {had}"


def publish(api: Api, submission: Submission, notify: Callable[[str], None]) -> dict[str, Any]:
    """Send folders without a job: to a ConfigMap of its own each, or to the claim that the job names.

    Returns:
        The chart's value ``code``.

    Raises:
        UsageError: the job has none, or one is too large for a ConfigMap and the job names no claim that exists.
    """
    spec, folders = submission.spec, submission.sources.folders
    if not folders:
        fix = "name the folder to send, as in --workdir ., or --requirements FILE"
        raise UsageError("workdir: none is given", fix=fix)
    for one in folders:
        check(api, spec, one)
    large = [one for one in folders if one.archive is None]
    if large and not spec.snapshots.claim:
        what = f"{large[0].key}: more than a ConfigMap can have ({ARCHIVE_LIMIT // 1024} KiB, packed)"
        raise UsageError(what, fix="name a claim that the chart's job uses, too: --claim NAME")
    places = {one.key: _publish_small(api, spec.namespace, one, notify) for one in folders if one not in large}
    if large:
        preflight.check_storage(api, spec)
        job, trainer = helper_pod.unsubmitted_job(api, spec, submission.sources)
        send(api, job, large, notify, trainer)
    found = {one.key: {"digest": one.tree.digest} | places.get(one.key, {}) for one in folders}
    requirements = {"requirements": found["requirements"]} if "requirements" in found else {}
    return found.get("workdir", {}) | requirements


def _publish_small(api: Api, namespace: str, folder: SentFolder, notify: Callable[[str], None]) -> dict[str, str]:
    name = f"code-{folder.tree.digest[:16]}"
    for found in create_or_find(api, _config_map(namespace, name, folder)):
        if [*found.get("binaryData", {})] != [folder.archive_key]:
            raise name_conflict(found)
        break
    notify(sent(folder, f"ConfigMap {name}"))
    return {"configMap": name}


def _config_map(namespace: str, name: str, folder: SentFolder) -> Object:
    labels = {names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: "sources"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "immutable": True,
        "binaryData": folder.binary_data,
    }


def shorten(change: Change) -> Change:
    """A change in which a packed folder is replaced by a short summary; its key has the digest."""
    return replace(change, before=_shortened(change.before), after=_shortened(change.after))


def _shortened(thing: T) -> T:
    if not thing or "binaryData" not in thing:
        return thing
    return {**thing, "binaryData": {key: f"{len(text)} characters" for key, text in thing["binaryData"].items()}}


def _frames(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in pieces that a connection takes."""
    for piece in pieces:
        for start in range(0, len(piece), PIECE_BYTES):
            yield piece[start : start + PIECE_BYTES]
