"""Writes a model file as ``torch.save`` does, but tensor by tensor, to a stream.

Such a file is a zip archive of plain records: a pickle that describes the tensors, and the bytes of each. Torch writes
one without the bytes; its records are copied here and the bytes added. Torch numbers the tensors' records as it pickles
the tensors; in which order it writes the records depends on its version.
"""

from __future__ import annotations

import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.serialization import skip_data

from kittrain.rank.snapshots.files import tree
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.state.weights import Weights
from kittrain.system.files import Buffer
from kittrain.torch_private.ranks import fake_tensors

ALIGNMENT: Final = 64  # bytes: alignment of a record's content, as in torch's files, so that it can be mapped
TEMPLATE: Final = "model.pt"
FOLDER: Final = "model"  # of all records: torch names it after the file, if the file's path is ASCII
DATA: Final = f"{FOLDER}/data/"  # prefix of the names of the records with the tensors' bytes; a number follows
HEADER: Final = 30 + 20  # bytes before a record's name and padding: zip's header, and the zip64 sizes
PADDING: Final = 0x4246  # id of a zip extra field without meaning, as torch uses it


def stream(weights: Weights) -> Iterator[Buffer]:
    """The file in parts.

    Raises:
        CorruptError: a tensor's bytes are damaged where they are read from, or torch would store other tensors.
        OSError: they cannot be read at the moment.
    """
    sink = _Sink()
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / TEMPLATE
        _write_template(weights, template)
        with zipfile.ZipFile(template) as records, zipfile.ZipFile(sink, "w") as out:  # type: ignore[call-overload]  # it asks for no more
            names = _names_by_record(weights, records)
            for record in records.namelist():
                name = _named(record)
                # No variable here may hold a record's content while the next one is read.
                _add(out, name, weights.content(names[name]) if name in names else records.read(record))
                yield from sink.take()
    yield from sink.take()


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A model file without the tensors' bytes, which several ranks write.

    Attributes:
        starts: offset of each tensor's bytes in the file, by name.
        end: offset after the last tensor.
    """

    starts: Mapping[str, int]
    end: int
    _records: Sequence[tuple[zipfile.ZipInfo, str, bytes]]  # entry, and the tensor's name or the content

    @classmethod
    def of(cls, weights: Weights) -> Frame:
        """The frame of a model's file; reads no tensor.

        Raises:
            CorruptError: torch would store other tensors.
        """
        starts, records, at = dict[str, int](), [], 0
        with tempfile.TemporaryDirectory() as folder:
            template = Path(folder) / TEMPLATE
            _write_template(weights, template)
            with zipfile.ZipFile(template) as given:
                names = _names_by_record(weights, given)
                for one in given.infolist():
                    info = _record(_named(one.filename), one.file_size, at)
                    info.compress_size, info.header_offset, info.CRC = one.file_size, at, 0
                    tensor = names.get(info.filename, "")
                    content = b"" if tensor else given.read(one)
                    records.append((info, tensor, content))
                    at += len(info.FileHeader(zip64=True))
                    if tensor:
                        starts[tensor] = at
                    at += one.file_size
        return cls(starts=starts, end=at, _records=records)

    def parts(self, checksums: Mapping[str, int]) -> Iterator[tuple[int, Buffer]]:
        """What is to be written besides the tensors: each part with its offset in the file.

        Args:
            checksums: CRC-32 of each tensor's bytes, by name.
        """
        sink = _Sink(self.end)
        with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload]  # it asks for no more
            for info, tensor, content in self._records:
                info.CRC = checksums[tensor] if tensor else zlib.crc32(content)
                yield info.header_offset, info.FileHeader(zip64=True) + content
                archive.filelist.append(info)
            archive.comment = b""  # makes it write the directory, although nothing was added through it
        yield self.end, b"".join(sink.take())


def _write_template(weights: Weights, path: Path) -> None:
    """Write the model file with holes instead of the tensors' bytes: a sparse file that needs no disk space."""
    with fake_tensors():
        tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in weights.structure.items()}
    with skip_data(materialize_fake_tensors=True):
        torch.save(tree.join(tensors, weights.tree), path)


def _names_by_record(weights: Weights, template: zipfile.ZipFile) -> dict[str, str]:
    """From the names of the records for tensors to the tensors' names.

    Raises:
        CorruptError: the template's records are not those of the tensors.
    """
    names = {f"{DATA}{number}": name for number, name in enumerate(dict.fromkeys(tree.tensor_names(weights.tree)))}
    shapes = {record: weights.structure[name] for record, name in names.items()}
    expected = {record: shape.numel() * dtype.itemsize for record, (shape, dtype) in shapes.items()}
    sizes = {_named(one.filename): one.file_size for one in template.infolist()}
    found = {name: size for name, size in sizes.items() if name.startswith(DATA)}
    if found != expected:
        raise CorruptError(
            f"torch {torch.__version__} would store {len(found)} tensors of {sum(found.values())} bytes, not the "
            f"model's {len(expected)} of {sum(expected.values())} bytes: is one in an unusual container?"
        )
    return names


def _named(record: str) -> str:
    """A record's name in the model file, wherever torch wrote it first."""
    return f"{FOLDER}/{record.partition('/')[2]}"


def _add(archive: zipfile.ZipFile, name: str, content: Buffer) -> None:
    assert archive.fp
    with archive.open(_record(name, len(content), archive.fp.tell()), "w", force_zip64=True) as file:
        file.write(content)


def _record(name: str, size: int, start: int) -> zipfile.ZipInfo:
    """A record with aligned content; a zip extra field holds the padding."""
    record = zipfile.ZipInfo(name)
    record.file_size = size
    padding = -(start + HEADER + len(name) + 4) % ALIGNMENT
    record.extra = struct.pack("<HH", PADDING, padding) + b"Z" * padding
    return record


class _Sink:
    """A file object for zipfile that holds references to what is written until it is taken; nothing is copied."""

    def __init__(self, start: int = 0) -> None:
        self._parts: list[Buffer] = []
        self._size = start

    def write(self, part: Buffer) -> int:
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing is buffered."""

    def seek(self, *_: Any) -> int:
        raise OSError("a stream cannot seek")

    def take(self) -> Iterator[Buffer]:
        parts, self._parts = self._parts, []
        return iter(parts)
