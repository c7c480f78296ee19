"""Sends a folder that is too large for a ConfigMap to the job's claim, before the job is released.

A helper pod says which files the store on the claim lacks, and receives these. So of a folder that was sent before,
only what has changed is sent; files of other jobs stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from kitctl import names, render
from kitctl.code_tree import ARCHIVE_LIMIT, Workdir
from kitctl.errors import Forbidden, UsageError
from kitctl.quantity import format_bytes
from kitctl.spec import JobSpec
from kitctl.targets import Change, Submission
from kitctl.targets.cluster import helper_pod, preflight
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.existing import create_or_find, name_conflict
from kitctl.targets.cluster.namespace_defaults import apply_namespace_defaults
from kitctl.targets.cluster.resources import Object
from kitctl.workdir.reading import largest
from kitctl.workdir.summary import sent

T = TypeVar("T", Mapping[str, Any], Mapping[str, Any] | None)

STORE: Final = (*names.CODE_STORE_COMMAND, names.CODE_PATH)
PIECE_BYTES: Final = 1 << 18


def check(api: Api, spec: JobSpec, workdir: Workdir) -> None:
    """Refuse a folder that could not be sent.

    Raises:
        UsageError: it is too large for a ConfigMap, and the job has no claim.
        Forbidden: it is too large for a ConfigMap, and this user may not send it to the claim.
    """
    if workdir.archive is not None:
        return
    sizes = {path: file.size for path, file in workdir.tree.files.items()}
    what = f"workdir: {format_bytes(workdir.tree.size)} of {workdir.folder} are more than a ConfigMap can have"
    what += f" ({ARCHIVE_LIMIT // 1024} KiB, packed); the largest files: {largest(sizes)}"
    if not spec.snapshots.enabled:
        fix = "list what training does not need in .kitignore, or let the job have a claim: snapshots.enabled, --claim"
        raise UsageError(f"{what}. The job has no claim that it could be sent to", fix=fix)
    if not preflight.permissions(api, spec.namespace).may_run_commands:
        fix = "ask for create of pods and pods/exec, or list what training does not need in .kitignore"
        raise Forbidden(f"{what}. You may not send it to the job's claim", fix=fix)


def send(api: Api, job: Object, workdir: Workdir, notify: Callable[[str], None]) -> None:
    """Send what the claim lacks, and say how much that is; a small folder is in a ConfigMap already.

    Raises:
        KitError: it could not be sent, or the folder has changed.
    """
    if workdir.archive is not None:
        notify(sent(workdir, f"ConfigMap {names.sources_name(job['metadata']['name'])}"))
        return
    from kitctl.workdir.archive import tar_pieces  # noqa: PLC0415 - few jobs need it

    tree = workdir.tree
    sizes = {file.sha256: file.size for file in tree.files.values()}
    with helper_pod.running(api, job) as run:
        missing = b"".join(run((*STORE, "missing"), [json.dumps(sizes).encode() + b"\n"])).decode().split()
        b"".join(run((*STORE, "receive"), _frames(tar_pieces(workdir.folder, tree, missing))))
    told = sent(workdir, f"claim {helper_pod.claim_of(job)}")
    size = format_bytes(sum(sizes[digest] for digest in missing))
    had = f"the claim had all but {len(missing)} of them ({size})" if missing else "the claim had all of them"
    notify(told if len(missing) == len(sizes) else f"{told}; {had}")


def publish(api: Api, submission: Submission, notify: Callable[[str], None]) -> dict[str, str]:
    """Send a folder without a job: to a ConfigMap of its own, or to the claim that the job names.

    Returns:
        The chart's value ``code``.

    Raises:
        UsageError: the job has no workdir, or it is too large for a ConfigMap and the job names no claim.
        NotFound: there is no such claim.
    """
    spec, workdir = submission.spec, submission.sources.workdir
    if workdir is None:
        raise UsageError("workdir: none is given", fix="name the folder to send, as in --workdir .")
    check(api, spec, workdir)
    digest = workdir.tree.digest
    if workdir.archive is not None:
        name = f"code-{digest[:16]}"
        for found in create_or_find(api, _config_map(spec.namespace, name, workdir)):
            if [*found.get("binaryData", {})] != [workdir.archive_key]:
                raise name_conflict(found)
            break
        notify(sent(workdir, f"ConfigMap {name}"))
        return {"digest": digest, "configMap": name}
    if not spec.snapshots.claim:
        what = f"workdir: more than a ConfigMap can have ({ARCHIVE_LIMIT // 1024} KiB, packed)"
        raise UsageError(what, fix="name a claim that the chart's job uses, too: --claim NAME")
    preflight.check_storage(api, spec)
    adapted = apply_namespace_defaults(api, spec)
    send(api, render.manifests(adapted, submission.sources)[-1], workdir, notify)
    return {"digest": digest}


def _config_map(namespace: str, name: str, workdir: Workdir) -> Object:
    labels = {names.LABEL_NAME: names.APP_NAME, names.LABEL_COMPONENT: "sources"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "immutable": True,
        "binaryData": workdir.binary_data,
    }


def shorten(change: Change) -> Change:
    """A change whose packed folder is a few words; its key has the digest."""
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
