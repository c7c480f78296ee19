"""A node's working folder: unpacked from the store once, verified, and not changed afterwards."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from kitjob.run import Code, RunFacts
from kittrain.agent.setup import workdir
from kittrain.agent.setup.workdir import CodeError, enter_workdir, unpack
from kittrain.job.env import NodeEnv
from tests.stores import packed, stored


@pytest.fixture(params=["folder", "archive"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """The digest and store of a folder with a script, a program, an empty file, binary data and links."""
    folder = tmp_path / "job"
    (folder / "lib" / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("print('ü')\n", encoding="utf-8")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "lib" / "__init__.py").touch()
    (folder / "lib" / "deep" / "w.bin").write_bytes(bytes(range(256)) * 9)
    (folder / "same.py").write_text("print('ü')\n", encoding="utf-8")
    (folder / "lib" / "up").symlink_to("../train.py")
    (folder / "weights").symlink_to("lib/deep")
    return packed(folder, tmp_path) if request.param == "archive" else stored(folder, tmp_path / "store")


def test_every_file_is_unpacked_unchanged(store: tuple[str, Path], tmp_path: Path) -> None:
    unpack(*store, tmp_path / "out")
    out, sent = tmp_path / "out", tmp_path / "job"
    names = {str(path.relative_to(sent)) for path in sent.rglob("*")}
    assert {str(path.relative_to(out)) for path in out.rglob("*")} == names | {workdir.MARKER}
    for path in (path for path in sent.rglob("*") if path.is_file() and not path.is_symlink()):
        copy = out / path.relative_to(sent)
        assert copy.read_bytes() == path.read_bytes()
        assert os.access(copy, os.X_OK) == os.access(path, os.X_OK)
    assert (out / "lib" / "up").readlink() == Path("../train.py")
    assert (out / "weights" / "w.bin").stat().st_size == 256 * 9


def test_files_that_a_script_writes_are_kept_and_the_store_is_not_read_again(
    store: tuple[str, Path], tmp_path: Path
) -> None:
    unpack(*store, tmp_path / "out")
    (tmp_path / "out" / "train.py").write_text("mine")
    (tmp_path / "out" / "snapshot.pt").write_text("1")
    unpack(store[0], tmp_path / "no store at all", tmp_path / "out")
    assert (tmp_path / "out" / "train.py").read_text() == "mine"
    assert (tmp_path / "out" / "snapshot.pt").read_text() == "1"


def test_an_interrupted_attempt_is_repeated(store: tuple[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "lib").mkdir(parents=True)
    (out / "train.py").write_text("half")
    (out / "weights").symlink_to("lib")
    unpack(*store, out)
    assert (out / "train.py").read_text(encoding="utf-8") == "print('ü')\n"
    assert (out / "weights").readlink() == Path("lib/deep")


def test_content_with_another_digest_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("one")
    digest, store = stored(tmp_path / "job", tmp_path / "store")
    (blob,) = (store / "blobs").iterdir()
    blob.write_text("two")
    with pytest.raises(CodeError, match=r"train\.py is not as it was sent: its digest differs"):
        unpack(digest, store, tmp_path / "out")
    blob.unlink()
    with pytest.raises(CodeError, match=f"{blob.name} is missing"):
        unpack(digest, store, tmp_path / "out")
    (store / "trees" / f"{digest}.json").write_text("{}")
    with pytest.raises(CodeError, match=f"tree {digest} has another content"):
        unpack(digest, store, tmp_path / "out")
    with pytest.raises(CodeError, match=r"f{64}\.json is missing"):
        unpack("f" * 64, store, tmp_path / "out")
    assert not (tmp_path / "out" / workdir.MARKER).exists()


def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"\x1f\x8b damaged")
    with pytest.raises(CodeError, match=r"x\.tar\.gz is damaged"):
        unpack("0" * 64, tmp_path / "x.tar.gz", tmp_path / "out")
    with pytest.raises(CodeError, match=r"y\.tar\.gz is missing"):
        unpack("0" * 64, tmp_path / "y.tar.gz", tmp_path / "out")


@pytest.mark.parametrize("tree", ['{"files":{"../x":FILE},"links":{}}', '{"files":{"/tmp/x":FILE},"links":{}}'])
def test_nothing_is_written_outside(tmp_path: Path, tree: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "x").write_text("1")
    _, store = stored(tmp_path / "job", tmp_path / "store")
    (blob,) = (store / "blobs").iterdir()
    content = '{"version":1,' + tree.replace("FILE", f'{{"sha256":"{blob.name}","size":1}}')[1:]
    digest = hashlib.sha256(content.encode()).hexdigest()
    (store / "trees" / f"{digest}.json").write_text(content)
    with pytest.raises(CodeError, match="is not in the working folder"):
        unpack(digest, store, tmp_path / "out")


@pytest.mark.parametrize("target", ["..", "../../x", "/etc", "a/../../x"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    content = f'{{"version":1,"files":{{}},"links":{{"x":"{target}"}}}}'
    digest = hashlib.sha256(content.encode()).hexdigest()
    (tmp_path / "store" / "trees").mkdir(parents=True)
    (tmp_path / "store" / "trees" / f"{digest}.json").write_text(content)
    with pytest.raises(CodeError, match="the link x leads out"):
        unpack(digest, tmp_path / "store", tmp_path / "out")


def test_the_agent_changes_to_it(store: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    enter_workdir(NodeEnv(), pytest.fail)
    assert Path.cwd() == tmp_path, "nothing was sent"
    digest, place = store
    enter_workdir(
        NodeEnv(run=RunFacts(code=Code(digest=digest, store=str(place), workdir=str(tmp_path / "out")))), pytest.fail
    )
    assert Path.cwd() == tmp_path / "out"
    assert os.environ["PWD"] == str(tmp_path / "out")


def test_a_mounted_config_map_is_copied_to_a_writable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount, temporary = tmp_path / "workspace", tmp_path / "tmp"
    data = mount / "..2026_01_01"
    (data / "lib").mkdir(parents=True)
    temporary.mkdir()
    (data / "train.py").write_text("1")
    (data / "lib" / "model.py").write_text("2")
    (mount / "..data").symlink_to(data.name)
    for name in ("train.py", "lib"):
        (mount / name).symlink_to(f"..data/{name}")
    monkeypatch.chdir(mount)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    enter_workdir(NodeEnv(), pytest.fail)
    assert Path.cwd().parent == temporary
    assert {path.name for path in Path.cwd().iterdir()} == {"train.py", "lib", workdir.MARKER}
    assert (Path.cwd() / "lib" / "model.py").read_text() == "2"
    Path("train.py").write_text("mine")
    monkeypatch.chdir(mount)
    enter_workdir(NodeEnv(), pytest.fail)
    assert Path("train.py").read_text() == "mine", "an agent that starts again in the pod copies nothing"


def test_nothing_is_written_through_a_link(store: tuple[str, Path], tmp_path: Path) -> None:
    """Of an earlier attempt, or of the script's own: the folder of a job on this machine stays."""
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    out.mkdir()
    (out / "lib").symlink_to(elsewhere)
    with pytest.raises(CodeError, match=r"lib is a link in .* delete it"):
        unpack(*store, out)
    assert list(elsewhere.iterdir()) == []
    assert not (out / workdir.MARKER).exists()


def test_a_file_that_is_a_link_is_replaced_and_not_followed(store: tuple[str, Path], tmp_path: Path) -> None:
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.write_text("mine")
    out.mkdir()
    (out / "train.py").symlink_to(mine)
    unpack(*store, out)
    assert mine.read_text() == "mine"
    assert not (out / "train.py").is_symlink()


def repacked(path: Path, change: Callable[[str, bytes], bytes], extra: int = 0) -> None:
    """Write an archive again, with other contents under the same names; ``extra``: bytes of an undeclared file."""
    with tarfile.open(path) as archive:
        parts = {one.name: part.read() for one in archive if (part := archive.extractfile(one))}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (parts | ({"blobs/bomb": bytes(extra)} if extra else {})).items():
            changed = change(name, content)
            info = tarfile.TarInfo(name)
            info.size = len(changed)
            archive.addfile(info, io.BytesIO(changed))


@pytest.mark.parametrize("where", [pytest.param("blobs", marks=pytest.mark.wide), "trees", "undeclared"])
def test_an_archive_is_not_read_beyond_what_its_tree_declares(tmp_path: Path, where: str) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text("pass")
    digest, path = packed(folder, tmp_path)
    size = (96 if where == "trees" else 64) << 20
    if where == "undeclared":
        repacked(path, lambda _, content: content, size)
    else:
        repacked(path, lambda name, content: bytes(size) if name.startswith(where) else content)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        if where == "undeclared":
            unpack(digest, path, tmp_path / "out")
        else:
            with pytest.raises(CodeError, match="larger than declared"):
                unpack(digest, path, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 48 << 20  # of 64 MiB at least
    finally:
        tracemalloc.stop()
