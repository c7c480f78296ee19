"""Seeds that follow from what they are for."""

from __future__ import annotations

import hashlib


def derive(*parts: int | str) -> int:
    """A seed of 63 bits for a purpose: equal parts give equal seeds, on any machine, in any process."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
