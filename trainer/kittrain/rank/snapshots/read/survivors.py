"""The state of ranks that have outlived their round: who is ahead gives it to all others. Collective.

Ranks may differ by one optimizer step: an exchange of gradients may have succeeded on some of them only. All of them go
on from the last step that one has finished, and compare digests of what they have then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from kittrain.rank.snapshots.files import tree
from kittrain.rank.snapshots.files.layout import bytes_of, local_part
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.files.tree import Structure, Tensors
from kittrain.rank.snapshots.folder.chain import Life
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor

BLOCK: Final = 64 << 20  # bytes that are sent at once
NONE: Final = -1  # steps of a rank without a state
UNUSABLE: Final = (CorruptError, IncompatibleError)


class StatesDifferError(RuntimeError):
    """The ranks that have outlived their round cannot go on: another process takes the place of each."""


@dataclass(frozen=True, kw_only=True)
class Brought:
    """What a rank brings from the round that it has outlived.

    Attributes:
        cursor: of the data, after the last step in its state; None: an optimizer step was cut short, so it has none.
        rounds: who took the steps that are in it, as far as this process knows.
        losses: of the last steps, by their number, that not all ranks may know.
        loop: of a script's own loop: its epoch, and the step that this began after; else empty.
        asked: whether the loop has done what it does after its last step, such as an evaluation.
        requested: the metrics of a snapshot that it has requested, and that was not taken; None: there is none.
        alike: whether the script had seeded all ranks alike.
    """

    cursor: Cursor | None = None
    rounds: Sequence[Life] = ()
    losses: Mapping[int, float] = field(default_factory=dict)
    loop: Sequence[int] = ()
    asked: bool = False
    requested: Mapping[str, float] | None = None
    alike: bool = False

    def reached(self, step: int) -> int:
        """How far the rank is, to compare it with others: after a step, what follows it, and the end of its epoch."""
        return 3 * step + (2 if self.loop[-1:] == [step] else int(self.asked))


def seeded_alike(world: World) -> bool:
    """Whether the script has seeded all ranks alike, and has several. Collective."""
    seeds = world.all_gather([torch.initial_seed() >> 1])  # a signed number
    return world.size > 1 and len({seed for (seed,) in seeds}) == 1


def agree(world: World, reached: int | None, *, outlived: bool, part: int = 0) -> Mapping[int, int] | None:
    """For each part of the model, the first rank that is the furthest, of those that have outlived their round.

    Args:
        world: all ranks.
        reached: how far this rank's state is; None: it has none that could be trained on.
        outlived: whether this rank has outlived its round.
        part: of the model that this rank holds.

    Returns:
        None if all ranks are new.

    Raises:
        StatesDifferError: ranks have outlived their round, and no state is whole.
    """
    rows = world.all_gather([NONE if reached is None else reached, int(outlived), part])
    most = max(have for have, _, _ in rows)
    if most == NONE:
        if any(lived for _, lived, _ in rows):
            raise StatesDifferError("an optimizer step was cut short on each rank that is left")
        return None
    sources: dict[int, int] = {}
    for rank, (have, _, number) in enumerate(rows):
        if have == most:
            sources.setdefault(number, rank)
    parts = {number for _, _, number in rows}
    if lost := sorted(parts - sources.keys()):
        raise StatesDifferError(
            f"no rank that is left holds part {lost[0] + 1} of {len(parts)} of the model after the last step"
        )
    return sources


def share(world: World, state: State, *, sources: Mapping[int, int], has: bool, change: Callable[[], None]) -> None:
    """Give all ranks the sources' state.

    Args:
        world: all ranks.
        state: of this rank.
        sources: the ranks that ``agree`` has returned.
        has: whether this rank has finished the same steps.
        change: called before this rank's state is changed.

    Raises:
        StatesDifferError: ranks have different states after the same steps, or after this.
        IncompatibleError: a rank has another model or optimizer.
    """
    part = state.part
    digests = world.all_gather([int(has), _digest(state) if has else 0, part.number])
    known = {(number, digest) for have, digest, number in digests if have}
    if len(known) > len(sources):
        raise StatesDifferError("the ranks that are left have different states after the same steps")
    if not all(have for have, _, _ in digests):
        if not has:
            change()
        _send(world, state, source=sources[part.number], group=part.group, keep=has)
        after = world.all_gather([part.number, _digest(state)])
        if {(number, digest) for number, digest in after} != known:
            raise StatesDifferError("a rank has not received the state as it was sent")
    for buffer in state.buffers():  # batch statistics differ between ranks within a step
        _broadcast(world, buffer, source=min(sources.values()))


def _send(world: World, state: State, *, source: int, group: ProcessGroup | None, keep: bool) -> None:
    """Send the source's state to all of its group; ``keep``: this rank has it already."""
    tensors, rest = state.capture()
    about = {"names": list(tensors), "rest": rest}
    about["shapes"] = [list(one.shape) for one in tensors.values()]
    about["types"] = [str(one.dtype).removeprefix("torch.") for one in tensors.values()]
    content = tree.dump(about) if world.rank == source else b""
    sent = tree.load(world.broadcast_bytes(content, source=source, group=group))
    structure: Structure = {
        name: (torch.Size(shape), getattr(torch, kind))
        for name, shape, kind in zip(sent["names"], sent["shapes"], sent["types"], strict=True)
    }
    targets = world.attempt(lambda: tensors if keep else _targets(state, structure, sent["rest"]), *UNUSABLE)
    for name in structure:
        _broadcast(world, targets[name], source=source, group=group)
    if not keep:
        state.apply(targets, sent["rest"])


def _targets(state: State, structure: Structure, rest: Any) -> Tensors:
    targets = state.targets(structure, rest)
    if missing := structure.keys() - targets.keys():
        raise IncompatibleError(f"this rank has no {min(missing)}")
    return targets


def _broadcast(world: World, tensor: Tensor, *, source: int, group: ProcessGroup | None = None) -> None:
    """Set the part of a tensor that this rank holds to the source's, bit for bit, whatever its type and layout."""
    values = local_part(tensor)
    whole = values.contiguous()
    if whole.numel():
        for block in whole.view(-1).view(torch.uint8).split(BLOCK):
            world.broadcast(block, source=source, group=group)
    if whole.data_ptr() != values.data_ptr():
        values.copy_(whole)


def _digest(state: State) -> int:
    """Of all tensors that are equal, between two steps, on all ranks that hold the same part of the model."""
    tensors, _ = state.capture()
    buffers = {one.data_ptr() for one in state.buffers()}
    digest = hashlib.sha256()
    for name, tensor in sorted(_equal(tensors, buffers).items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
        digest.update(bytes_of(tensor))
    return int.from_bytes(digest.digest()[:8], "big", signed=True)


def _equal(tensors: Tensors, buffers: set[int]) -> Tensors:
    return {name: one for name, one in tensors.items() if local_part(one).data_ptr() not in buffers}
