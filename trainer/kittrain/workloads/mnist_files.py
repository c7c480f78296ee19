"""Finds, or downloads once a node, the images of MNIST and Fashion-MNIST, and reads them.

Both are four files in the IDX format: 60,000 training and 10,000 test images of 28x28 pixels, with labels 0 to 9.
"""

from __future__ import annotations

import gzip
import os
import socket
import zlib
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from kittrain.system.make_once import make_once

Name = Literal["MNIST", "FashionMNIST"]
Part = Literal["train", "t10k"]
NAMES: Final[tuple[Name, ...]] = ("MNIST", "FashionMNIST")
PARTS: Final[tuple[Part, ...]] = ("train", "t10k")
FILES: Final = tuple(f"{part}-{kind}" for part in PARTS for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
DEBIAN: Final = {"FashionMNIST": Path("/usr/share/datasets/fashion-mnist")}  # of Debian's dataset-fashion-mnist
DOWNLOAD_TIMEOUT: Final = 30.0  # seconds without a byte
HEADER: Final = 4  # bytes, before the sizes of the dimensions


class ImagesNotFoundError(Exception):
    """The images are not here, and cannot be downloaded, or are damaged; the message has the fix."""


def load(name: Name, root: Path | None = None, mirror: str | None = None) -> tuple[TensorDataset, TensorDataset]:
    """Training and test images (n, 1, 28, 28) uint8, with labels (n,) int64.

    Args:
        name: of the data set.
        root: folder that has the files, or torchvision's folder of all data sets, into which they are downloaded
            if they are not there; None is the package's, or else a cache.
        mirror: URL of a folder with the files; None are torchvision's mirrors.

    Raises:
        ImagesNotFoundError: they are not here and cannot be downloaded, or a file is damaged.
    """
    folder = find(name, root) or download(name, root or cache(), mirror)
    train, test = (_read_part(folder, part) for part in PARTS)
    return train, test


def cache() -> Path:
    """The user's folder for downloads, which all jobs on this machine share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kittrain"


def find(name: Name, root: Path | None) -> Path | None:
    """The folder that has all files of a data set."""
    return next((folder for folder in _folders(name, root) if all(_file(folder, file) for file in FILES)), None)


def _folders(name: Name, root: Path | None) -> Iterator[Path]:
    """Where the files may be; only below the root if there is one."""
    if root:
        yield root
    elif name in DEBIAN:
        yield DEBIAN[name]
    yield (root or cache()) / name / "raw"


def _file(folder: Path, name: str) -> Path | None:
    """A file, compressed or not."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def download(name: Name, root: Path, mirror: str | None) -> Path:
    """Download a data set into torchvision's layout: one process does, any others wait. Returns the files' folder.

    Raises:
        ImagesNotFoundError: the folder cannot be written, or no mirror can be reached.
    """
    folder = root / name / "raw"
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)  # torchvision sets none
    try:
        make_once(folder, lambda content: _fetch(name, content, mirror))
    except (OSError, RuntimeError, HTTPException) as error:
        raise ImagesNotFoundError(_not_found(name, root, error)) from error
    finally:
        socket.setdefaulttimeout(timeout)
    if not all(_file(folder, file) for file in FILES):
        raise ImagesNotFoundError(f"{folder} lacks some of {', '.join(FILES)}; fix: remove it, to download them all")
    return folder


def _fetch(name: Name, folder: Path, mirror: str | None) -> None:
    """Download the files of a data set, each from the first mirror that has it.

    Raises:
        RuntimeError: no mirror has a file with the right digest.
    """
    from torchvision import datasets  # noqa: PLC0415  takes a second, and only a download needs it
    from torchvision.datasets.utils import download_url  # noqa: PLC0415  likewise

    kind = getattr(datasets, name)
    for file, digest in kind.resources:
        errors = []
        for url in [mirror] if mirror else kind.mirrors:
            try:
                download_url(f"{url.rstrip('/')}/{file}", str(folder), file, digest)
                break
            except (OSError, RuntimeError, ValueError, HTTPException) as error:  # ValueError: it is no URL
                errors.append(f"{url}: {error}")
        else:
            raise RuntimeError("; ".join(errors))


def _not_found(name: Name, root: Path, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0]
    package = ", install Debian's package dataset-fashion-mnist" if name in DEBIAN else ""
    return (
        f"{name} is not in {root}, and cannot be downloaded there: {reason}\n"
        f"fix: mount a folder with {FILES[0]}.gz and the other three files and name it with --data{package}, "
        "or name a reachable --mirror"
    )


def _read_part(folder: Path, part: Part) -> TensorDataset:
    images, labels = (_read(folder, file) for file in FILES if file.startswith(part))
    if images.ndim != 3 or labels.shape != images.shape[:1]:  # noqa: PLR2004  images, rows, columns
        raise ImagesNotFoundError(f"{folder}: {part} has images {tuple(images.shape)}, labels {tuple(labels.shape)}")
    return TensorDataset(images[:, None], labels.long())


def _read(folder: Path, name: str) -> Tensor:
    """A file as a tensor of bytes: four bytes, of which the last is the number of dimensions, their sizes, and values.

    Raises:
        ImagesNotFoundError: the file is no such file, or truncated.
    """
    path = _file(folder, name)
    assert path is not None, f"{name} was in {folder} before"
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
        sizes = np.frombuffer(content, ">u4", content[3], HEADER)
        values = np.frombuffer(bytearray(content), np.uint8, offset=HEADER + 4 * len(sizes))
        return torch.from_numpy(values.reshape(sizes))
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise ImagesNotFoundError(f"{path} is damaged: {error}; fix: replace it") from error
