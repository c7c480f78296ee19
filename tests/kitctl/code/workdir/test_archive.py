"""The archive of a folder depends on its content alone."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

from kitctl.code.code_tree import CodeTree
from kitctl.code.workdir.archive import small_archive
from kitctl.code.workdir.reading import file_of


def test_an_archive_has_no_times_and_no_owner(tmp_path: Path) -> None:
    found, path = [], tmp_path / "train.py"
    for time in (1, 1_000_000_000):
        path.write_text("pass")
        os.utime(path, (time, time))
        tree = CodeTree(files={"train.py": file_of(path, "train.py")}, links={})
        found.append(small_archive(tree, lambda _: path.read_bytes()) or b"")
    assert found[0] == found[1]
    assert found[0][4:8] == bytes(4), "gzip's own time"
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(found[0]))) as archive:
        facts = {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in archive.getmembers()}
    assert facts == {(0, 0, 0, "", "")}
