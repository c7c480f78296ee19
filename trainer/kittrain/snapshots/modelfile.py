"""A model file as ``torch.save`` writes it, tensor by tensor: it goes to a stream while the tensors are still read.

Such a file is a zip archive of plain records: a pickle, which says what the tensors are, and the bytes of each. Torch
itself writes one without the bytes; here its records are copied, with the bytes.
"""

from __future__ import annotations

import struct
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.serialization import skip_data

from kittrain.snapshots import tree
from kittrain.snapshots.weights import Weights
from kittrain.system.files import Buffer

ALIGNMENT: Final = 64  # bytes: where a record's content begins, as torch has it, so that it can be mapped
HOLLOW: Final = "model.pt"  # the folder of all records is called after it
DATA: Final = "model/data/"  # what the names of the records begin with that are the tensors' bytes
HEADER: Final = 30 + 20  # bytes before a record's name and the padding: zip's own, and those of sizes above 4 GiB
PADDING: Final = 0x4246  # zip's number of a field that means nothing, as torch uses it


def pieces(weights: Weights) -> Iterator[Buffer]:
    """The file, piece by piece.

    Raises:
        CorruptError: a tensor's bytes are damaged where they are read from.
        OSError: they cannot be read at the moment.
    """
    sink = _Sink()
    with tempfile.TemporaryDirectory() as folder:
        hollow = Path(folder) / HOLLOW
        _write_hollow(weights, hollow)
        with zipfile.ZipFile(hollow) as records, zipfile.ZipFile(sink, "w") as out:  # type: ignore[call-overload]  # it asks for no more
            names = iter(dict.fromkeys(tree.places(weights.tree)))
            for record in records.namelist():
                # No variable here keeps what a record holds until the next one is read.
                _add(out, record, weights.content(next(names)) if record.startswith(DATA) else records.read(record))
                yield from sink.taken()
    yield from sink.taken()


def _write_hollow(weights: Weights, path: Path) -> None:
    """The model file with holes instead of the tensors' bytes: it takes no room on the disk, and no memory."""
    with FakeTensorMode():
        tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in weights.structure.items()}
    with skip_data(materialize_fake_tensors=True):
        torch.save(tree.join(tensors, weights.tree), path)


def _add(archive: zipfile.ZipFile, name: str, content: Buffer) -> None:
    assert archive.fp
    with archive.open(_record(name, len(content), archive.fp.tell()), "w", force_zip64=True) as file:
        file.write(content)


def _record(name: str, size: int, start: int) -> zipfile.ZipInfo:
    """A record whose content is aligned: zip has a field for what is to be skipped."""
    record = zipfile.ZipInfo(name)
    record.file_size = size
    padding = -(start + HEADER + len(name) + 4) % ALIGNMENT
    record.extra = struct.pack("<HH", PADDING, padding) + b"Z" * padding
    return record


class _Sink:
    """A file for zipfile that keeps what is written until it is taken; nothing is copied."""

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._size = 0

    def write(self, part: Buffer) -> int:
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing waits."""

    def seek(self, *_: Any) -> int:
        raise OSError("what is taken cannot be changed")

    def taken(self) -> Iterator[Buffer]:
        parts, self._parts = self._parts, []
        return iter(parts)
