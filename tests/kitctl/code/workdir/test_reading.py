"""Files that change while they are read, or after that."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitctl.base.errors import SpecError
from kitctl.code.code_tree import CodeTree
from kitctl.code.workdir.archive import small_archive
from kitctl.code.workdir.reading import file_of


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
