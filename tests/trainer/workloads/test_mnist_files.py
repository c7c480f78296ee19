"""Finding and downloading the images; errors have a fix."""

from __future__ import annotations

import gzip
import multiprocessing
import os
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from kittrain.workloads import mnist_files
from kittrain.workloads.digits import digits
from kittrain.workloads.mnist_files import FILES, ImagesNotFoundError
from tests.trainer.workloads import idx


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files, which torchvision expects at its mirrors."""
    idx.expect(monkeypatch, idx.write(tmp_path / "mirror"))
    return tmp_path / "mirror"


def check(train: TensorDataset, test: TensorDataset) -> None:
    """They are the digits."""
    for found, original in zip((train, test), digits(), strict=True):
        assert found.tensors[0].dtype == torch.uint8
        assert found.tensors[0].shape == (len(original), 1, 28, 28)
        assert found.tensors[1].equal(original.tensors[1])


@pytest.mark.parametrize("below", [".", "MNIST/raw"])
@pytest.mark.parametrize("compressed", [True, False])
def test_files_in_a_folder_are_read(tmp_path: Path, below: str, *, compressed: bool) -> None:
    idx.write(tmp_path / "data" / below / "set")
    (tmp_path / "data" / below / "set").rename(tmp_path / "moved")
    target = tmp_path / "data" / below
    for path in (tmp_path / "moved").iterdir():
        content = path.read_bytes()
        (target / (path.name if compressed else path.stem)).write_bytes(
            content if compressed else gzip.decompress(content)
        )
    check(*mnist_files.load("MNIST", tmp_path / "data"))


def test_several_processes_download_each_file_once(tmp_path: Path, mirror: Path) -> None:
    with idx.serve(mirror) as (url, requests):
        mnist_files.load("MNIST", tmp_path / "one process", url)
        of_one = sorted(requests)  # torchvision asks for redirects first
        requests.clear()
        fork = multiprocessing.get_context("fork")
        processes = [fork.Process(target=mnist_files.load, args=("MNIST", tmp_path / "data", url)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]
        check(*mnist_files.load("MNIST", tmp_path / "data", url))
    assert sorted(requests) == of_one


def test_without_a_folder_they_go_to_the_cache(mirror: Path) -> None:
    with idx.serve(mirror) as (url, _):
        check(*mnist_files.load("MNIST", mirror=url))
    check(*mnist_files.load("MNIST"))
    assert (Path(os.environ["XDG_CACHE_HOME"]) / "kittrain" / "MNIST" / "raw").is_dir()


def test_a_file_with_another_digest_is_not_used(tmp_path: Path, mirror: Path) -> None:
    (mirror / f"{FILES[2]}.gz").write_bytes(gzip.compress(b"not these"))
    with idx.serve(mirror) as (url, _), pytest.raises(ImagesNotFoundError, match="corrupted"):
        mnist_files.load("MNIST", tmp_path / "data", url)
    assert not (tmp_path / "data" / "MNIST" / "raw").exists()


@pytest.mark.parametrize("mirror", ["http://127.0.0.1:9/", "not a url", "http://nowhere.invalid"])
def test_an_unreachable_mirror_is_an_error_with_the_fix(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(ImagesNotFoundError) as caught:
        mnist_files.load("MNIST", tmp_path, mirror)
    assert f"MNIST is not in {tmp_path}, and cannot be downloaded there: {mirror}: " in str(caught.value)
    assert "\nfix: mount a folder with train-images-idx3-ubyte.gz" in str(caught.value)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ImagesNotFoundError, match="Not a directory"):
        mnist_files.load("MNIST", tmp_path / "file")


def test_debians_package_is_advice_for_fashion_mnist_only(tmp_path: Path) -> None:
    for name, advised in (("MNIST", False), ("FashionMNIST", True)):
        with pytest.raises(ImagesNotFoundError) as caught:
            mnist_files.load(name, tmp_path, "http://127.0.0.1:9/")  # type: ignore[arg-type]
        assert ("dataset-fashion-mnist" in str(caught.value)) is advised


def test_an_incomplete_folder_is_named(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    idx.write(raw)
    (raw / f"{FILES[0]}.gz").unlink()
    with pytest.raises(ImagesNotFoundError, match=r"raw lacks some of train-images.*; fix: remove it"):
        mnist_files.load("MNIST", tmp_path)


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def empty(_: bytes) -> bytes:
    return b""


def other(content: bytes) -> bytes:
    return gzip.compress(gzip.decompress(content)[:-1])


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [cut, empty, other, flipped])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_named(tmp_path: Path, file: str, damage: object) -> None:
    assert callable(damage)
    idx.write(tmp_path / "data")
    path = tmp_path / "data" / f"{file}.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ImagesNotFoundError, match=rf"{path} is damaged: .*; fix: replace it"):
        mnist_files.load("MNIST", tmp_path / "data")


def test_files_that_do_not_belong_together_are_an_error(tmp_path: Path) -> None:
    idx.write(tmp_path / "data")
    labels = [tmp_path / "data" / f"{file}.gz" for file in FILES if "labels" in file]
    labels[0].write_bytes(labels[1].read_bytes())
    with pytest.raises(ImagesNotFoundError, match=r"train has images \(1438, 28, 28\), labels \(359,\)"):
        mnist_files.load("MNIST", tmp_path / "data")
