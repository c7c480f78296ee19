"""Collectives for bytes, on torch's collectives for tensors: nothing that is received is unpickled.

All ranks call the same function, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

LENGTH: Final = 8  # bytes of a content's length
SHORT: Final = 2040  # bytes of a content that needs no collective of its own


def gather(content: bytes, device: torch.device) -> list[bytes]:
    """All ranks' contents, by rank, on rank 0; an empty list on the others."""
    ranks, is_main = dist.get_world_size(), dist.get_rank() == 0
    sizes = list(torch.empty(ranks, dtype=torch.int64, device=device).unbind())
    dist.all_gather(sizes, torch.tensor(len(content), device=device))
    lengths: list[int] = torch.stack(sizes).tolist()
    parts = [_empty(max(lengths), device) for _ in lengths] if is_main else None
    dist.gather(_padded(content, max(lengths), device), parts, dst=0)
    return [_bytes(part, length) for part, length in zip(parts or (), lengths, strict=is_main)]


def all_gather(
    numbers: Sequence[int], device: torch.device, *, group: dist.ProcessGroup | None = None
) -> list[list[int]]:
    """All ranks' numbers of 64 bits, by rank, on every rank; all ranks have as many; of a group, if one is given."""
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    rows = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, own, group=group)
    found: list[list[int]] = torch.stack(rows).tolist()
    return found


def broadcast(content: bytes, device: torch.device, *, source: int, group: dist.ProcessGroup | None = None) -> bytes:
    """The source rank's content; that of the others is ignored. A short one is sent together with its length."""
    is_source = dist.get_rank() == source
    frame = _empty(LENGTH + SHORT, device)
    if is_source:
        head = len(content).to_bytes(LENGTH, "little") + content[:SHORT]
        frame = _padded(head, LENGTH + SHORT, device)
    dist.broadcast(frame, src=source, group=group)
    received = _bytes(frame, LENGTH + SHORT)
    length = int.from_bytes(received[:LENGTH], "little")
    if length <= SHORT:
        return content if is_source else received[LENGTH : LENGTH + length]
    part = _padded(content, length, device) if is_source else _empty(length, device)
    dist.broadcast(part, src=source, group=group)
    return content if is_source else _bytes(part, length)


def scatter(contents: Sequence[bytes], device: torch.device) -> bytes:
    """This rank's entry of rank 0's contents; those of the others are ignored."""
    is_main = dist.get_rank() == 0
    sizes = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=device)
    if is_main:
        sizes += torch.tensor([len(content) for content in contents], device=device)
    dist.broadcast(sizes, src=0)
    lengths: list[int] = sizes.tolist()
    part = _empty(max(lengths), device)
    dist.scatter(part, [_padded(one, max(lengths), device) for one in contents] if is_main else None, src=0)
    return _bytes(part, lengths[dist.get_rank()])


def _empty(size: int, device: torch.device) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def _padded(content: bytes, size: int, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(content.ljust(size)), dtype=torch.uint8).to(device)


def _bytes(part: Tensor, size: int) -> bytes:
    return part[:size].cpu().numpy().tobytes()
