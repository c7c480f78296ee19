"""The code store on a claim: it lists missing files, and accepts only content that matches its digest."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from kitctl.code.workdir.archive import tar_pieces
from kitctl.code.workdir.collecting import collect
from kittrain.agent.setup.workdir import unpack
from kittrain.helper import code_store
from kittrain.helper.code_store import StoreError, missing, receive

COMMAND = (sys.executable, "-P", "-m", "kittrain.helper.code_store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "job"
    (place / "lib").mkdir(parents=True)
    for number in range(3):
        (place / "lib" / f"{number}.py").write_text(f"X = {number}\n")
    return place


def send(folder: Path, store: Path) -> tuple[str, int]:
    """Send a folder with the helper pod's commands; returns its digest and the number of files sent."""
    tree = collect(folder, ()).tree
    sizes = {file.sha256: file.size for file in tree.files.values()}
    asked = json.dumps(sizes).encode() + b"\nmore"
    lacking = subprocess.run([*COMMAND, str(store), "missing"], input=asked, capture_output=True, check=True)
    digests = lacking.stdout.decode().split()
    sent = b"".join(tar_pieces(tree, digests, lambda path: (folder / path).read_bytes()))
    subprocess.run([*COMMAND, str(store), "receive"], input=sent, capture_output=True, check=True)
    return tree.digest, len(digests)


def test_only_what_has_changed_is_sent_and_both_states_can_be_unpacked(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    before, first = send(folder, store)
    (folder / "lib" / "1.py").write_text("X = 'new'\n")
    after, second = send(folder, store)
    assert (first, second) == (3, 1)
    unpack(before, store, tmp_path / "a")
    unpack(after, store, tmp_path / "b")
    assert (tmp_path / "a" / "lib" / "1.py").read_text() == "X = 1\n"
    assert (tmp_path / "b" / "lib" / "1.py").read_text() == "X = 'new'\n"
    assert (tmp_path / "b" / "lib" / "2.py").read_text() == "X = 2\n"


def test_an_interrupted_transfer_is_repeated(folder: Path, tmp_path: Path) -> None:
    tree = collect(folder, ()).tree
    whole = b"".join(tar_pieces(tree, tree.paths, lambda path: (folder / path).read_bytes()))
    with pytest.raises(StoreError, match="no whole archive"):
        receive(tmp_path / "store", io.BytesIO(whole[:1200]))
    sizes = {file.sha256: file.size for file in tree.files.values()}
    assert len([*missing(tmp_path / "store", sizes)]) == 2
    first = next(iter(tree.paths))
    (tmp_path / "store" / "blobs" / first).chmod(0o644)
    (tmp_path / "store" / "blobs" / first).write_bytes(b"")
    assert len([*missing(tmp_path / "store", sizes)]) == 3, "a power cut may leave an empty file"
    assert receive(tmp_path / "store", io.BytesIO(whole)) == 4
    assert not [*missing(tmp_path / "store", sizes)]


def test_a_file_of_the_right_size_with_other_content_is_sent_again(folder: Path, tmp_path: Path) -> None:
    """Such as one that a rank has overwritten; else no job with that file would ever start."""
    store = tmp_path / "store"
    send(folder, store)
    damaged = next((store / "blobs").iterdir())
    damaged.chmod(0o644)
    damaged.write_bytes(bytes(damaged.stat().st_size))
    digest, sent = send(folder, store)
    assert sent == 1
    unpack(digest, store, tmp_path / "out")


def test_what_a_killed_transfer_left_goes_with_the_next(folder: Path, tmp_path: Path) -> None:
    tree = collect(folder, ()).tree
    (tmp_path / "store" / "blobs").mkdir(parents=True)
    (tmp_path / "store" / "blobs" / f".{next(iter(tree.paths))}.1f").write_bytes(b"half")
    send(folder, tmp_path / "store")
    assert {path.name for path in (tmp_path / "store" / "blobs").iterdir()} == {*tree.paths}


def test_two_transfers_of_the_same_at_once_both_succeed(folder: Path, tmp_path: Path) -> None:
    tree = collect(folder, ()).tree
    whole = b"".join(tar_pieces(tree, tree.paths, lambda path: (folder / path).read_bytes()))
    command = [*COMMAND, str(tmp_path / "store"), "receive"]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for one in running:
        assert one.stdin
        one.stdin.write(whole)
    for one in running:
        assert one.communicate()[0] == b"4\n"
        assert one.returncode == 0
    assert not list((tmp_path / "store").rglob(".*"))


@pytest.mark.parametrize("name", ["../x", "blobs/x", "/tmp/x", "blobs/" + "0" * 64, "trees/" + "0" * 64])
def test_other_content_is_rejected(tmp_path: Path, name: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(StoreError):
        receive(tmp_path / "store", io.BytesIO(out.getvalue()))
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def test_an_error_is_the_last_line(tmp_path: Path) -> None:
    ended = subprocess.run([*COMMAND, str(tmp_path), "receive"], input=b"x" * 600, capture_output=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.decode().startswith("what was received is no whole archive")


def test_a_draft_that_another_transfer_removes_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has stored the same in the meantime."""
    data = b"content"
    name = f"blobs/{hashlib.sha256(data).hexdigest()}"
    (tmp_path / "blobs").mkdir()
    change_mode = os.fchmod

    def removed(descriptor: int, mode: int) -> None:
        change_mode(descriptor, mode)
        for draft in (tmp_path / "blobs").glob(".*"):
            draft.unlink()

    monkeypatch.setattr(os, "fchmod", removed)
    assert [*code_store._draft(tmp_path, name, io.BytesIO(data)).values()] == [tmp_path / name]
