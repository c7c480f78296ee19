"""``python -P -m kittrain.rank.snapshots``: manages a folder of snapshots; kitctl runs it where the folder is mounted.

It prints one JSON document; ``export`` prints the file itself. Messages go to stderr.

Why: decision 15.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kitjob import typed
from kitjob.history import Audit, SnapshotDetails, SnapshotFacts, Tensor
from kitjob.record import Record
from kittrain.rank.snapshots import proof
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import catalogue
from kittrain.rank.snapshots.folder.catalogue import CatalogueError, SnapshotInfo
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError, Manifest
from kittrain.rank.snapshots.mirror import viewing
from kittrain.rank.snapshots.mirror.errors import MirrorDamagedError, MirrorError, MirrorUnavailableError
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.system.files import Buffer

Options = argparse.Namespace
FAILURES: Final = (
    *(CatalogueError, CorruptError, IncompatibleError, OSError, ValueError),
    *(MirrorDamagedError, MirrorError, MirrorUnavailableError),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and print its result; errors end with exit code 1 and the reason on stderr."""
    options = parser().parse_args(argv)
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keep libraries' output out of the result
    try:
        with open(output, "wb") as stream, _scratch(options):  # noqa: PTH123 - a descriptor
            stream.writelines(COMMANDS[options.command](options))
    except FAILURES as error:
        sys.exit(str(error))


def list_(options: Options) -> Iterable[bytes]:
    """All snapshots, the newest first."""
    return _json([_row(one) for one in _all(options)])


def verify(options: Options) -> Iterable[bytes]:
    """All snapshots, or one, with every byte read."""
    found = _all(options, verify=True)
    return _json([_row(one) for one in ([catalogue.pick(found, options.which)] if options.which else found)])


def show(options: Options) -> Iterable[bytes]:
    """One snapshot, its ledger, and the model's tensors."""
    info, manifest = _pick(options)
    tensors = tuple(Tensor(**asdict(one)) for one in catalogue.parameters(info, manifest))
    row = _row(info)
    return _json(
        SnapshotDetails(**{name: getattr(row, name) for name in row.__fields__}, **_details(manifest), tensors=tensors)
    )


def export(options: Options) -> Iterable[Buffer]:
    """The model's plain state dict as a file."""
    from kittrain.rank.snapshots.state import model_file, safetensors, weights  # noqa: PLC0415  only this command needs torch

    info, manifest = _pick(options)
    source = weights.of_snapshot(info.path)
    if options.format == "pt":
        return model_file.stream(source)
    return safetensors.stream(source, {"job": manifest.job, "step": str(manifest.step), "snapshot": manifest.name})


def prune(options: Options) -> Iterable[bytes]:
    """List the snapshots that may be deleted, or delete those given by ``--drop NAME``."""
    if options.mirror:
        raise CatalogueError(
            f"{options.mirror}: a mirror is pruned by the run that writes it, as snapshots.keep of its job says; to "
            "delete it as a whole, delete the prefix with your store's own tools"
        )
    found = catalogue.inspect_all(options.folder, verify=True)
    selection = {"keep": options.keep, "damaged": options.damaged}
    if options.drop:
        gone = catalogue.delete(found, options.drop, **selection)
        catalogue.delete_histories(options.folder, [one for one in found if one not in gone])
        return _json([_row(one) for one in gone])
    return _json([_row(one) for one in catalogue.prunable(found, **selection)])


def audit(options: Options) -> Iterable[bytes]:
    """A proof and the ledger that it is based on, for each snapshot, the newest first."""
    found = [one for one in _all(options) if one.path.name.startswith("step-")]
    manifests = {one.path.name: one.manifest for one in found if one.manifest}
    proofs = tuple(proof.prove(one, manifests) for one in manifests.values())
    return _json(Audit(proofs=proofs, unusable=tuple(_row(one) for one in found if not one.manifest)))


COMMANDS: Final[Mapping[str, Callable[[Options], Iterable[Buffer]]]] = {
    "list": list_,
    "verify": verify,
    "show": show,
    "export": export,
    "prune": prune,
    "audit": audit,
}


def parser() -> argparse.ArgumentParser:
    """The command line: a folder, a command, and its options."""
    line = argparse.ArgumentParser(prog="python -m kittrain.rank.snapshots", description=__doc__)
    place = line.add_mutually_exclusive_group(required=True)
    place.add_argument("--folder", type=Path, help="folder of the snapshots")
    place.add_argument("--mirror", metavar="URL", help="their mirror, as snapshots.mirror names it")
    commands = line.add_subparsers(dest="command", required=True)
    made = {name: commands.add_parser(name, help=run.__doc__) for name, run in COMMANDS.items()}
    for name in ("verify", "show", "export"):
        made[name].add_argument("which", nargs="?", help="step or name of a snapshot (default: the newest good one)")
    made["export"].add_argument("--format", choices=("pt", "safetensors"), default="pt")
    made["prune"].add_argument("--keep", type=int, required=True, help="number of newest good snapshots to keep")
    made["prune"].add_argument("--damaged", action="store_true", help="include damaged ones")
    made["prune"].add_argument("--drop", metavar="NAME", action="append", default=[], help="delete this snapshot")
    return line


@contextmanager
def _scratch(options: Options) -> Iterator[None]:
    """A folder for what is read of a mirror, until the end."""
    if not options.mirror:
        yield
        return
    with TemporaryDirectory(prefix="kit-") as folder:
        options.folder = Path(folder)
        yield


def _all(options: Options, *, verify: bool = False) -> list[SnapshotInfo]:
    if options.mirror:
        return viewing.inspect_all(Store(options.mirror), options.folder, verify=verify)
    return catalogue.inspect_all(options.folder, verify=verify)


def _pick(options: Options) -> tuple[SnapshotInfo, Manifest]:
    info = catalogue.pick(_all(options), options.which)
    if info.manifest is None:
        raise CatalogueError(f"{info.path.name} is {info.condition}: {info.reason}")
    if options.mirror:
        viewing.fetch_one(Store(options.mirror), options.folder, info.path.name)
    return info, info.manifest


def _row(info: SnapshotInfo) -> SnapshotFacts:
    manifest = info.manifest
    return SnapshotFacts(
        name=info.path.name,
        condition=info.condition,
        reason=info.reason,
        step=info.step,
        generation=info.generation,
        size=info.size,
        epoch=_epoch(manifest) if manifest else None,
        run=manifest.run if manifest else None,
        world_size=manifest.world_size if manifest else None,
        created=manifest.created if manifest else None,
        not_finite=manifest.not_finite if manifest else "",
    )


def _epoch(manifest: Manifest) -> int | None:
    """The epoch of the last step, from 1; None if the order of the data is not known."""
    reached = manifest.cursor
    return reached.epoch + (reached.position > 0) if manifest.segment.order.is_known else None


def _details(manifest: Manifest) -> dict[str, Any]:
    known = manifest.segment.order.is_known
    return {
        "job": manifest.job,
        "position": manifest.cursor.position if known else 0,
        "samples": manifest.samples if known else 0,
        "batch": manifest.batch if known else 0,
        "seed": manifest.seed,
        "torch": manifest.torch,
        "parent": manifest.parent.name if manifest.parent else "",
        "digest": manifest.digest,
        "ledger": proof.entries(manifest),
    }


def _json(value: Record | Sequence[Record]) -> list[bytes]:
    return [json.dumps(typed.encode(value), indent=1).encode(), b"\n"]


if __name__ == "__main__":
    main()
