"""A rank that allocates more memory than its container's limit."""

from __future__ import annotations

print("taking all the memory there is")
taken = [bytearray(b"x") * (64 << 20) for _ in range(200)]
