"""The checksum of a file from those of its parts."""

from __future__ import annotations

import zlib
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kittrain.rank.snapshots.files import crc


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)))
def test_the_parts_add_up(content: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    found = 0
    for start, stop in pairwise(edges):
        found ^= crc.shifted(zlib.crc32(content[start:stop]), len(content) - stop)
    assert found == zlib.crc32(content)


def test_a_distance_of_gigabytes() -> None:
    zeros = bytes(1 << 20)
    long = zlib.crc32(b"head")
    for _ in range(64):
        long = zlib.crc32(zeros, long)
    assert crc.shifted(zlib.crc32(b"head"), 64 << 20) ^ _of_zeros(64 << 20) == long
    assert crc.shifted(crc.shifted(1, 5 << 40), 3) == crc.shifted(1, (5 << 40) + 3)


def _of_zeros(size: int) -> int:
    found = 0
    for _ in range(size >> 20):
        found = zlib.crc32(bytes(1 << 20), found)
    return found
