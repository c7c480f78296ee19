"""Files in MNIST's format, of real images: the digits, enlarged."""

from __future__ import annotations

import gzip
import hashlib
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain.workloads.digits import digits


def write(folder: Path) -> dict[str, str]:
    """Write the four compressed files; returns each one's MD5 by name."""
    folder.mkdir(parents=True)
    train, test = digits()
    for part, images in (("train", train), ("t10k", test)):
        _write_part(folder, part, images)
    return {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def _write_part(folder: Path, part: str, images: TensorDataset) -> None:
    pixels = functional.interpolate(images.tensors[0] * 255, size=(28, 28), mode="bilinear").to(torch.uint8)
    for kind, values in (("images-idx3-ubyte", pixels[:, 0]), ("labels-idx1-ubyte", images.tensors[1].byte())):
        header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
        with gzip.open(folder / f"{part}-{kind}.gz", "wb", compresslevel=1) as file:
            file.write(header + values.numpy().tobytes())


@contextmanager
def serve(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A web server; yields its URL, and the paths that are requested from it."""
    requests: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            with suppress(BrokenPipeError):  # torchvision may not want the content
                super().do_GET()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
        server.shutdown()


def expect(monkeypatch: pytest.MonkeyPatch, digests: dict[str, str]) -> None:
    """Make torchvision expect these files instead of the real ones."""
    monkeypatch.setattr("torchvision.datasets.MNIST.resources", [*digests.items()])
