"""Losses that are given probabilities, the output of a softmax or a sigmoid, where they apply it themselves.

``cross_entropy`` and ``binary_cross_entropy_with_logits`` take raw scores, ``nll_loss`` takes logarithms. It is seen in
the graph of a backward pass, so no function of torch is wrapped; a compiled model hides it. A rank says so at its end.
What it costs: an addition for each pass; at the 8th, 16th, 32nd, ... and the one after it, as those of a GAN take
turns, a look at the nodes next to the loss. Imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from kittrain.agent.hooks.graph import nodes, roots_of
from kittrain.agent.hooks.looks import is_due
from kittrain.outcome.rank_output import PROBABILITIES

STEPS: Final = 8  # at least, before it is looked: a script may try its model before it trains it
NEAREST: Final = 100  # nodes of the graph, among which a loss is looked for
BETWEEN: Final = 4  # nodes, at most, between it and what it is given
# By the loss's node: the loss, and what it is not given.
LOSSES: Final = {
    "LogSoftmax": ("cross_entropy (or log_softmax)", "Softmax"),  # which is the first part of it
    "NllLoss": ("nll_loss", "Softmax"),
    "NllLoss2D": ("nll_loss", "Softmax"),
    "BinaryCrossEntropyWithLogits": ("binary_cross_entropy_with_logits", "Sigmoid"),
}
# Nodes of what leaves values as they are: other shapes, other types, some of them, and the output of DDP's wrapper.
KEEPS: Final = frozenset(
    {
        *("Clone", "DDPSink", "Index", "Permute", "ReshapeAlias", "Select", "Slice", "Squeeze", "T", "ToCopy"),
        *("Transpose", "UnsafeView", "Unsqueeze", "View"),
    }
)


class GivenProbabilities:
    """The losses that the backward passes of a process begin with.

    Args:
        steps: how many were taken.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._passes = 0
        self._told = ""

    def begins(self, given: Any) -> None:
        """A backward pass begins, from a tensor or several."""
        self._passes += 1
        if self._told or not is_due(self._passes // 2, STEPS // 2) or self._steps() < STEPS:
            return
        with suppress(Exception):  # the script's own kinds of tensors may refuse anything
            self._told = next(filter(None, map(_mistaken, islice(nodes(roots_of(given)), NEAREST))), "")

    def tell(self) -> None:
        """Say it, at the end of the script."""
        if self._told:
            sys.stderr.write(f"note: {PROBABILITIES}{self._told}\n")


def _mistaken(node: Any) -> str:
    """What a node is given by mistake, if it is a loss's; else empty."""
    loss, unwanted = LOSSES.get(_kind(node), ("", ""))
    number = 0
    for _ in range(BETWEEN + 1 if loss else 0):
        node, number = node.next_functions[number if _kind(node) == "DDPSink" else 0]  # which has an input by output
        kind = "" if node is None else _kind(node)
        if kind == unwanted:
            return f"the input of {loss} is the output of a {unwanted.lower()}"
        if kind not in KEEPS:
            break
    return ""


def _kind(node: Any) -> str:
    """``Softmax``, of ``SoftmaxBackward0``."""
    name: str = node.name()
    return name.lstrip("_").rstrip("0123456789").removesuffix("Backward")
