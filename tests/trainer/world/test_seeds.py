"""Seeds that are told again."""

from __future__ import annotations

from kittrain.world.seeds import derive


def test_derived_seeds_are_the_same_in_every_version() -> None:
    assert derive("epoch", 0, 0) == 5185008691832534246
    assert len({derive("a", 1, 2), derive("a", 12), derive("a", 1), derive("b", 1)}) == 4
    assert all(0 <= derive(number) < 2**63 for number in range(100))
