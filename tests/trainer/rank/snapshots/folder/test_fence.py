"""Each generation is claimed only once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kittrain.rank.snapshots.folder.fence import Fence, Fenced


def test_racing_claims_get_different_numbers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda i: Fence(tmp_path).claim(f"run-{i}"), range(40)))
    assert sorted(claimed) == list(range(1, 41))


def test_only_the_newest_generation_passes_the_check(tmp_path: Path) -> None:
    fence = Fence(tmp_path)
    assert fence.claim("a") == 1
    fence.check(1)
    (tmp_path / ".fence" / ".nfs0001").touch()  # left by a network file system
    assert Fence(tmp_path).claim("b") == 2
    fence.check(2)
    with pytest.raises(Fenced, match="generation 1 must not publish"):
        fence.check(1)
