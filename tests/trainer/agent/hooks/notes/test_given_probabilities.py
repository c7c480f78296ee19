"""Losses that are given the output of a softmax or a sigmoid, and those that look alike, and are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from kittrain.agent.hooks.notes.given_probabilities import GivenProbabilities
from kittrain.outcome.rank_output import PROBABILITIES

LABELS = torch.tensor([0, 2, 1, 2])
ENTROPY = "the input of cross_entropy (or log_softmax) is the output of a softmax"
LIKELIHOOD = "the input of nll_loss is the output of a softmax"
BINARY = "the input of binary_cross_entropy_with_logits is the output of a sigmoid"


def told_of(
    loss: Callable[[Tensor], Any], capsys: pytest.CaptureFixture[str], *, passes: int = 9, steps: int = 8
) -> str:
    """What is told of passes that begin with a loss of scores, of 4 samples and 3 classes."""
    given = GivenProbabilities(lambda: steps)
    for _ in range(passes):
        given.begins(loss(torch.randn(4, 3, requires_grad=True)))
    given.tell()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (lambda x: functional.cross_entropy(x.softmax(1), LABELS), ENTROPY),
        (lambda x: nn.CrossEntropyLoss(label_smoothing=0.1)(nn.Softmax(1)(x), LABELS), ENTROPY),
        (lambda x: functional.cross_entropy(x.softmax(1), functional.one_hot(LABELS, 3).float()), ENTROPY),
        (lambda x: functional.cross_entropy(x.view(2, 2, 3).softmax(2).flatten(0, 1), LABELS), ENTROPY),
        (lambda x: functional.cross_entropy(x.view(2, 2, 3).softmax(2).transpose(1, 2), LABELS.view(2, 2)), ENTROPY),
        (lambda x: functional.cross_entropy(x.softmax(1)[1:].contiguous(), LABELS[1:]), ENTROPY),
        (lambda x: functional.cross_entropy(x.softmax(1)[LABELS > 0], LABELS[LABELS > 0]), ENTROPY),
        (lambda x: functional.cross_entropy(x.bfloat16().softmax(1).float(), LABELS), ENTROPY),
        (lambda x: 65536 * (functional.cross_entropy(x.softmax(1), LABELS) + 0.1 * x.square().mean()), ENTROPY),
        (lambda x: [x.sum(), functional.cross_entropy(x.softmax(1), LABELS)], ENTROPY),
        (lambda x: functional.nll_loss(x.softmax(1), LABELS), LIKELIHOOD),
        (lambda x: functional.nll_loss(x.view(2, 3, 2).softmax(1), LABELS.view(2, 2)), LIKELIHOOD),
        (lambda x: functional.nll_loss(x.softmax(1).log_softmax(1), LABELS), ENTROPY),
        (lambda x: functional.binary_cross_entropy_with_logits(x.sigmoid(), torch.rand(4, 3)), BINARY),
        (lambda x: nn.BCEWithLogitsLoss(reduction="sum")(x[:, 0].sigmoid().unsqueeze(1), torch.rand(4, 1)), BINARY),
        (lambda x: functional.cross_entropy(x, LABELS), ""),
        (lambda x: functional.cross_entropy(x.log_softmax(1), LABELS), ""),  # does nothing
        (lambda x: functional.nll_loss(x.log_softmax(1), LABELS), ""),
        (lambda x: functional.nll_loss(x.softmax(1).log(), LABELS), ""),
        (lambda x: functional.binary_cross_entropy_with_logits(x, torch.rand(4, 3)), ""),
        (lambda x: functional.binary_cross_entropy(x.sigmoid(), torch.rand(4, 3)), ""),
        (lambda x: functional.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"), ""),  # of a teacher
        (lambda x: functional.cross_entropy(x, x.softmax(1)), ""),
        (lambda x: functional.cross_entropy(x.softmax(1) @ torch.rand(3, 3), LABELS), ""),  # attention
        (lambda x: functional.cross_entropy(x.softmax(1) / 0.07, LABELS), ""),  # a temperature
        (lambda x: functional.cross_entropy(x.sigmoid(), LABELS), ""),
        (lambda x: functional.cross_entropy(torch.cat([x, x.softmax(1)])[:4], LABELS), ""),
        (lambda x: functional.cross_entropy(x.softmax(1).detach() + x, LABELS), ""),  # a metric
        (lambda x: functional.cross_entropy(x.softmax(1).T.T.T.T.T.T, LABELS), ""),  # beyond where it is looked
        (lambda _: functional.cross_entropy(torch.rand(4, 3), LABELS), ""),  # without a graph
        (lambda x: x, ""),
        (lambda _: None, ""),
        (lambda _: object(), ""),
        (lambda _: [object()], ""),
    ],
)
def test_what_is_told_of_a_loss(loss: Callable[[Tensor], Any], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told_of(loss, capsys) == (f"note: {PROBABILITIES}{told}\n" if told else "")


@pytest.mark.parametrize(("passes", "steps", "told"), [(8, 8, True), (7, 8, False), (40, 7, False), (40, 0, False)])
def test_it_is_told_of_a_training(passes: int, steps: int, told: bool, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001  a parameter of the test
    found = told_of(lambda x: functional.cross_entropy(x.softmax(1), LABELS), capsys, passes=passes, steps=steps)
    assert bool(found) == told


@pytest.mark.parametrize("which", [0, 1])
def test_of_two_models_that_take_turns_both_are_looked_at(which: int, capsys: pytest.CaptureFixture[str]) -> None:
    calls = iter(range(9))
    told = told_of(lambda x: functional.cross_entropy(x.softmax(1) if next(calls) % 2 == which else x, LABELS), capsys)
    assert told.startswith(f"note: {PROBABILITIES}")


@pytest.mark.parametrize(("output", "told"), [(0, ""), (1, ENTROPY)])
def test_the_outputs_of_a_wrapped_model_are_told_apart(
    output: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            scores: Tensor = self.layer(x)
            return scores, scores.softmax(1)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = DistributedDataParallel(Two(), find_unused_parameters=True)
        found = told_of(lambda x: functional.cross_entropy(model(x.detach())[output], LABELS), capsys)
    finally:
        dist.destroy_process_group()
    assert found == (f"note: {PROBABILITIES}{told}\n" if told else "")


def test_no_graph_is_kept() -> None:
    given = GivenProbabilities(lambda: 8)
    freed: list[int] = []

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.freed = Freed()
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0]

    class Freed:
        def __del__(self) -> None:
            freed.append(1)

    for _ in range(9):
        x: Any = Identity.apply(torch.randn(4, 3, requires_grad=True))
        given.begins(functional.cross_entropy(x.softmax(1), LABELS))
    del x
    assert len(freed) == 9
