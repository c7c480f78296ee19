"""The graph of a backward pass. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

NODES: Final = 20_000  # of the graph, among which is looked


def roots_of(given: Any) -> list[Any]:
    """The tensors that a backward pass starts from, of one or several that it was given."""
    return [given] if hasattr(given, "grad_fn") else list(given)


def leaves(roots: Iterable[Any]) -> Iterator[Any]:
    """The tensors that a backward pass gives gradients to, the nearest first."""
    for node in nodes(roots):
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf


def nodes(roots: Iterable[Any]) -> Iterator[Any]:
    """The nodes that a backward pass goes through, the nearest first."""
    queue = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(queue)
    for node in queue:  # which grows meanwhile
        yield node
        new = {after for after, _ in node.next_functions if after is not None} - seen
        if len(seen) < NODES:
            seen |= new
            queue.extend(new)
