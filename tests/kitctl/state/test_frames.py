"""Whose a frame is, and how those of libraries are folded."""

from __future__ import annotations

import pytest

from kitctl.state.frames import folded, package_of

TORCH = "/v/lib/python3.11/site-packages/torch/autograd/graph.py"


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("/workspace/train.py", ""),
        ("train.py", ""),
        (TORCH, "torch"),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        ("/usr/lib/python3.12/threading.py", "Python"),
        ("<frozen runpy>", "Python"),
        ("/v/site-packages/kittrain/rank/training/loop.py", "kittrain"),
        ("/src/trainer/kittrain/rank/training/loop.py", "kittrain"),
        ("/v/site-packages/kittrain/workloads/toy.py", ""),
    ],
)
def test_whose_a_file_is(file: str, package: str) -> None:
    assert package_of(file) == package


def test_frames_of_libraries_are_counted_and_a_single_one_stays() -> None:
    files = [TORCH, "a.py", TORCH, "b.py", TORCH, TORCH, "<frozen runpy>"]
    assert list(folded(files, str)) == [TORCH, "a.py", TORCH, "b.py", "... 2 frames of torch, 1 of Python"]
    assert list(folded([TORCH, TORCH], str, kept=0)) == ["... 2 frames of torch"]
