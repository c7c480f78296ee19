"""Files that change while they are read, or after that; names that cannot be sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kitctl.base.errors import SpecError
from kitctl.code.code_tree import CodeTree
from kitctl.code.workdir.archive import small_archive
from kitctl.code.workdir.reading import file_of, read_tree


def test_a_file_that_is_longer_than_its_size_changed_while_it_was_read() -> None:
    """A file of ``/proc`` always is: its size is 0."""
    with pytest.raises(SpecError, match="status changed while it was read"):
        file_of(Path("/proc/self/status"), "status")


def test_a_file_that_changed_before_it_was_sent_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("one")
    tree = CodeTree(files={"train.py": file_of(path, "train.py")}, links={})
    assert small_archive(tree, lambda _: path.read_bytes())
    path.write_text("two")
    with pytest.raises(SpecError, match=r"train\.py changed while it was read"):
        small_archive(tree, lambda _: path.read_bytes())


@pytest.mark.parametrize("name", [b"a\nb", b"a\x1b[2J", b"\xff", "a\u202eb".encode()])
@pytest.mark.parametrize("place", ["a file", "a link", "a folder", "a target"])
def test_a_name_that_a_line_cannot_hold_is_refused_wherever_it_is(tmp_path: Path, name: bytes, place: str) -> None:
    strange = os.fsdecode(name)
    (tmp_path / "train.py").touch()
    path = {"a file": strange, "a link": strange, "a folder": f"{strange}/train.py", "a target": "link"}[place]
    (tmp_path / path).parent.mkdir(exist_ok=True)
    if place == "a target":
        (tmp_path / strange).touch()
    if "link" in {path, place.removeprefix("a ")}:
        (tmp_path / path).symlink_to(strange if place == "a target" else "train.py")
    else:
        (tmp_path / path).touch()
    with pytest.raises(SpecError, match="has letters that cannot be sent; fix: rename it"):
        read_tree(tmp_path, ["train.py", path])
