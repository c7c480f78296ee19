"""The marker of a finished run."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from kittrain.outcome import marker


def test_each_run_has_its_own_marker(tmp_path: Path) -> None:
    marker.mark(tmp_path, "run-1", {"step": 3})
    assert marker.finished(tmp_path, "run-1")
    assert not marker.finished(tmp_path, "run-2")
    assert not marker.finished(tmp_path / "absent", "run-1")
    assert not marker.finished(None, "run-1")


def test_an_unreadable_folder_raises_or_counts_as_not_finished(tmp_path: Path) -> None:
    marker.mark(tmp_path, "run-1", {})
    with patch("os.stat", side_effect=OSError(errno.EIO, os.strerror(errno.EIO))):
        with pytest.raises(OSError, match="Input/output error"):
            marker.finished(tmp_path, "run-1")
        assert not marker.seen_finished(tmp_path, "run-1")
    assert marker.seen_finished(tmp_path, "run-1")
