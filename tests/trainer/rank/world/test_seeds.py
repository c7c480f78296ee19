"""Derived seeds."""

from __future__ import annotations

from kittrain.rank.world.seeds import derive_seed


def test_derived_seeds_are_the_same_in_every_version() -> None:
    assert derive_seed("epoch", 0, 0) == 5185008691832534246
    assert len({derive_seed("a", 1, 2), derive_seed("a", 12), derive_seed("a", 1), derive_seed("b", 1)}) == 4
    assert all(0 <= derive_seed(number) < 2**63 for number in range(100))
