"""Plans which rank writes which part of the state: each part once, and replicated parts distributed over the ranks.

Each rank plans for itself. Ranks that hold the same parts find each other by a digest of these parts, and distribute
them by the same rule, so a rank's work does not grow with the number of ranks.

Why: decision 48.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final

import torch
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from kittrain.rank.snapshots.files.layout import Layout
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.files.tree import Tensors
from kittrain.rank.world.distributed import World

Shares = Mapping[int, list[Piece]]  # a rank's parts of the state, by how their tensors are distributed
REPLICATED: Final = 0  # whole on each rank


def plan(world: World, tensors: Tensors, *, main_only: bool) -> Layout:
    """Distribute the state over the ranks. Collective.

    Args:
        world: all ranks.
        tensors: of this rank; all ranks have the same names.
        main_only: whether rank 0 writes all replicated tensors.
    """
    pieces = local_pieces(tensors)
    mine = _planned_here(world, tensors, pieces, main_only=main_only)
    if mine is None:
        mine = _planned_by_rank_0(world, pieces, main_only=main_only)
    return Layout.of(mine, tensors)


def _planned_here(world: World, tensors: Tensors, pieces: Sequence[Piece], *, main_only: bool) -> list[Piece] | None:
    """What this rank writes; None if the ranks' plans would not add up to the state, which all ranks notice."""
    by_share = shares(tensors, pieces)
    same = world.all_gather([structure_digest(tensors), len(by_share)])
    if same.count(same[0]) != len(same):
        return None
    held = world.all_gather([digest(share) for share in by_share.values()])
    chosen = set[Piece]()
    for number, (distribution, share) in enumerate(by_share.items()):
        holders = [rank for rank, digests in enumerate(held) if digests[number] == held[world.rank][number]]
        if main_only and distribution == REPLICATED:
            holders = [0]
        chosen.update(written_by(world.rank, share, holders))
    bytes_written = world.all_gather([sum(one.stop - one.start for one in chosen)])
    if sum(size for (size,) in bytes_written) != sum(one.numel() * one.dtype.itemsize for one in tensors.values()):
        return None
    return [one for one in pieces if one in chosen]


def local_pieces(tensors: Tensors) -> list[Piece]:
    """What a rank holds of the state, each part with offsets as if it were alone in a shard."""
    return [_piece(item) for item in create_default_local_save_plan(tensors, is_coordinator=True).items]


def shares(tensors: Tensors, pieces: Sequence[Piece]) -> Shares:
    """A rank's parts by distribution: of all tensors of one, it holds the same parts as the same other ranks.

    Parts without elements are left out, unless the whole tensor has none.
    """
    of = distributions(tensors)
    found: dict[int, list[Piece]] = {distribution: [] for distribution in of.values()}
    for piece in pieces:
        if piece.stop > piece.start or not tensors[piece.tensor].numel():
            found[of[piece.tensor]].append(piece)
    return found


def distributions(tensors: Tensors) -> dict[str, int]:
    """How each tensor is distributed, as a number that is equal on all ranks; ``REPLICATED`` if it is whole on each."""
    meshes = {id(one.device_mesh): one.device_mesh for one in tensors.values() if isinstance(one, DTensor)}
    described = {key: _without_ranks(mesh) for key, mesh in meshes.items()}
    known: dict[object, int] = {}
    found = {}
    for name, one in tensors.items():
        if isinstance(one, DTensor):
            key = id(one.device_mesh), one.placements
            if key not in known:
                known[key] = _digest(f"{one.placements} {described[id(one.device_mesh)]}")
            found[name] = known[key]
        else:
            found[name] = REPLICATED
    return found


def structure_digest(tensors: Tensors) -> int:
    """A digest of what is equal on all ranks: the tensors' names, shapes, types and distributions."""
    of = distributions(tensors)
    return _digest(repr([(name, tuple(one.shape), str(one.dtype), of[name]) for name, one in tensors.items()]))


def digest(pieces: Sequence[Piece]) -> int:
    """A digest of parts of the state, as a signed number of 64 bits."""
    return _digest(repr([(one.tensor, one.offsets, one.sizes) for one in pieces]))


def written_by(rank: int, pieces: Sequence[Piece], holders: Sequence[int]) -> list[Piece]:
    """The parts that a rank writes of those that it and others hold: the largest first, each to whoever has the least.

    Args:
        rank: one of all.
        pieces: equal on all holders.
        holders: ranks; if this one is none of them, it writes nothing.
    """
    if list(holders) == [rank]:
        return list(pieces)
    loads = [(0, holder) for holder in holders]
    heapify(loads)
    mine = []
    for piece in sorted(pieces, key=lambda one: one.start - one.stop):
        load, holder = loads[0]
        heapreplace(loads, (load + piece.stop - piece.start, holder))
        if holder == rank:
            mine.append(piece)
    return mine


def _without_ranks(mesh: DeviceMesh) -> str:
    """A mesh's shape and the distances between its ranks: equal for parallel submeshes."""
    ranks = mesh.mesh
    return f"{tuple(ranks.shape)} {(ranks - ranks.min()).flatten().tolist()}"


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)


def _planned_by_rank_0(world: World, pieces: Sequence[Piece], *, main_only: bool) -> list[Piece]:
    """The same for any state, such as one of which the ranks have different tensors; its work grows with the ranks."""
    assigned = assign_pieces(world.gather(list(pieces), list[Piece]), main_only=main_only)
    return [pieces[number] for number in world.scatter(assigned, list[int])]


def assign_pieces(parts: Sequence[Sequence[Piece]], *, main_only: bool) -> list[list[int]]:
    """Deduplicate: for each rank, the indices of its parts that it writes. A replicated part is written once.

    Args:
        parts: of each rank.
        main_only: whether rank 0 writes all replicated tensors.
    """
    planner = DefaultSavePlanner(flatten_state_dict=False, dedup_save_to_lowest_rank=main_only)
    planner.set_up_planner({})
    plans, _ = planner.create_global_plan([SavePlan([_item(part) for part in local]) for local in parts])
    chosen = [{item.index for item in plan.items} for plan in plans]
    return [
        [number for number, part in enumerate(local) if _item(part).index in mine]
        for local, mine in zip(parts, chosen, strict=True)
    ]


def _item(part: Piece) -> WriteItem:
    """A part in the form of torch's planner."""
    offsets = torch.Size(part.offsets)
    data = TensorWriteData(
        chunk=ChunkStorageMetadata(offsets=offsets, sizes=torch.Size(part.sizes)),
        properties=TensorProperties(dtype=getattr(torch, part.dtype)),
        size=torch.Size(part.shape),
    )
    return WriteItem(index=MetadataIndex(part.tensor, offsets), type=WriteItemType.SHARD, tensor_data=data)


def _piece(item: WriteItem) -> Piece:
    data = item.tensor_data
    assert data is not None
    return Piece(
        tensor=item.index.fqn,
        dtype=str(data.properties.dtype).removeprefix("torch."),
        shape=tuple(data.size),
        offsets=tuple(data.chunk.offsets),
        sizes=tuple(data.chunk.sizes),
        start=0,
        stop=data.chunk.sizes.numel() * data.properties.dtype.itemsize,
    )
