"""``python -P -m kittrain.snapshots``: looks after a folder of snapshots from beside it; kitctl runs it there.

It answers with one JSON document; export with the file itself. What a person is to know goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kittrain.snapshots import catalogue
from kittrain.snapshots.catalogue import CatalogueError, Kept
from kittrain.snapshots.proof import prove
from kittrain.snapshots.shards import CorruptError
from kittrain.snapshots.snapshot import ForeignError, Manifest
from kittrain.system.files import Buffer

Options = argparse.Namespace


def main(argv: Sequence[str] | None = None) -> None:
    """Answer on stdout; what cannot be answered ends with exit code 1 and the reason on stderr."""
    options = parser().parse_args(argv)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no part of the answer
    try:
        with open(answers, "wb") as stream:  # noqa: PTH123 - a descriptor
            stream.writelines(VERBS[options.verb](options))
    except (CatalogueError, CorruptError, ForeignError, OSError, ValueError) as error:
        sys.exit(str(error))


def list_(options: Options) -> Iterable[bytes]:
    """All snapshots, the newest first."""
    return _json([_row(one) for one in catalogue.everything(options.folder)])


def verify(options: Options) -> Iterable[bytes]:
    """All snapshots, or one, with every byte read."""
    found = catalogue.everything(options.folder, thorough=True)
    return _json([_row(one) for one in ([catalogue.pick(found, options.which)] if options.which else found)])


def show(options: Options) -> Iterable[bytes]:
    """One snapshot, its ledger, and the model's tensors."""
    kept, manifest = _one(options)
    tensors = [asdict(one) for one in catalogue.parameters(kept, manifest)]
    return _json({**_row(kept), **_details(manifest), "tensors": tensors})


def export(options: Options) -> Iterable[Buffer]:
    """The model's bare state dict as a file."""
    from kittrain.snapshots import modelfile, safetensors, weights  # noqa: PLC0415  torch, which no other verb waits for

    kept, manifest = _one(options)
    held = weights.of_snapshot(kept.path)
    if options.format == "pt":
        return modelfile.pieces(held)
    return safetensors.pieces(held, {"job": manifest.job, "step": str(manifest.step), "snapshot": manifest.name})


def prune(options: Options) -> Iterable[bytes]:
    """What is superfluous; with ``--drop NAME`` that is deleted."""
    found = catalogue.everything(options.folder, thorough=True)
    chosen = {"keep": options.keep, "damaged": options.damaged}
    if options.drop:
        return _json([_row(one) for one in catalogue.drop(found, options.drop, **chosen)])
    return _json([_row(one) for one in catalogue.superfluous(found, **chosen)])


def audit(options: Options) -> Iterable[bytes]:
    """A proof, with the ledger that it rests on, for each snapshot, the newest first."""
    found = [one for one in catalogue.everything(options.folder) if one.path.name.startswith("step-")]
    manifests = {one.path.name: one.manifest for one in found if one.manifest}
    proofs = [asdict(prove(one, manifests)) | {"ledger": _entries(one)} for one in manifests.values()]
    return _json({"proofs": proofs, "unusable": [_row(one) for one in found if not one.manifest]})


VERBS: Final[Mapping[str, Callable[[Options], Iterable[Buffer]]]] = {
    "list": list_,
    "verify": verify,
    "show": show,
    "export": export,
    "prune": prune,
    "audit": audit,
}


def parser() -> argparse.ArgumentParser:
    """The command line: a folder, a verb, and what it needs to know."""
    line = argparse.ArgumentParser(prog="python -m kittrain.snapshots", description=__doc__)
    line.add_argument("--folder", type=Path, required=True, help="where the snapshots lie")
    verbs = line.add_subparsers(dest="verb", required=True)
    made = {name: verbs.add_parser(name, help=act.__doc__) for name, act in VERBS.items()}
    for name in ("verify", "show", "export"):
        made[name].add_argument("which", nargs="?", help="a step, or a snapshot's name; the newest good one")
    made["export"].add_argument("--format", choices=("pt", "safetensors"), default="pt")
    made["prune"].add_argument("--keep", type=int, required=True, help="how many of the newest good ones stay")
    made["prune"].add_argument("--damaged", action="store_true", help="damaged ones go, too")
    made["prune"].add_argument("--drop", metavar="NAME", action="append", default=[], help="delete this one")
    return line


def _one(options: Options) -> tuple[Kept, Manifest]:
    kept = catalogue.pick(catalogue.everything(options.folder), options.which)
    if kept.manifest is None:
        raise CatalogueError(f"{kept.path.name} is {kept.condition}: {kept.reason}")
    return kept, kept.manifest


def _row(kept: Kept) -> dict[str, Any]:
    manifest = kept.manifest
    return {
        "name": kept.path.name,
        "condition": kept.condition,
        "reason": kept.reason,
        "step": kept.step,
        "generation": kept.generation,
        "size": kept.size,
        "epoch": manifest and manifest.cursor.epoch + (manifest.cursor.position > 0),
        "run": manifest and manifest.run,
        "world_size": manifest and manifest.world_size,
        "created": manifest and manifest.created,
    }


def _details(manifest: Manifest) -> dict[str, Any]:
    return {
        "job": manifest.job,
        "position": manifest.cursor.position,
        "samples": manifest.samples,
        "batch": manifest.batch,
        "seed": manifest.seed,
        "torch": manifest.torch,
        "parent": manifest.parent.name if manifest.parent else "",
        "digest": manifest.digest,
        "ledger": _entries(manifest),
    }


def _entries(manifest: Manifest) -> list[dict[str, Any]]:
    return [asdict(one) for one in manifest.ledger]


def _json(value: object) -> list[bytes]:
    """With keys as kitctl's other JSON has them."""
    return [json.dumps(_camel(value), indent=1).encode(), b"\n"]


def _camel(value: object) -> object:
    match value:
        case dict():
            return {re.sub(r"_(.)", lambda m: m[1].upper(), key): _camel(one) for key, one in value.items()}
        case list():
            return [_camel(one) for one in value]
        case _:
            return value


if __name__ == "__main__":
    main()
