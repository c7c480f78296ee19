"""Adds up CRC-32 checksums of the parts of a file that several ranks write. Pure.

A checksum is a polynomial over GF(2) modulo that of CRC-32, and ``n`` more bytes multiply it by ``x ** 8n``. So the
checksum of a file is the exclusive or of its parts' checksums, each shifted by the number of bytes after the part.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

POLYNOMIAL: Final = 0xEDB88320  # of zlib.crc32, whose highest bit is the coefficient of x ** 0
ONE: Final = 1 << 31
EIGHT: Final = 1 << (31 - 8)  # x ** 8


def shifted(checksum: int, after: int) -> int:
    """What a part's checksum adds to the checksum of a file in which so many bytes follow it."""
    return _product(checksum, _power(after))


@lru_cache(maxsize=1024)  # a tensor's rows have equal distances
def _power(count: int) -> int:
    """``x ** (8 * count)``."""
    result, base = ONE, EIGHT
    while count:
        if count & 1:
            result = _product(result, base)
        base = _product(base, base)
        count >>= 1
    return result


def _product(first: int, second: int) -> int:
    product = 0
    while first:
        if first & ONE:
            product ^= second
        first = (first << 1) & 0xFFFF_FFFF
        second = (second >> 1) ^ (POLYNOMIAL if second & 1 else 0)
    return product
