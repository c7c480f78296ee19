"""Whether a loop takes batches ahead of their steps: those that it has not trained on yet, a resume would leave out.

Also whether it counts a step for batches whose gradients wait for a later one: those, a resume would leave out as well.

A wrapper that prefetches takes more batches in the first step of a pass than the backward passes of that step account
for, going by the steps after it. The batches alone do not tell: a loop may accumulate over more of them in some steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from kittrain.rank.training.step_hooks import after_step

STEPS: Final = 3  # of a pass: the first one, and two that agree

UNCLEAR: Final = (
    "note: the first step took {} batches from Run.batches(), the second {}. If the loop takes batches ahead of their "
    "steps, a resume leaves them out"
)
CARRIED: Final = (
    "warning: the loop has called run.step() and asks for another batch, with gradients that no optimizer has used: "
    "a resume leaves them out. Call it once for each step of the optimizer, for all batches of that"
)


class TakenAheadError(RuntimeError):
    """The loop takes batches ahead of their steps.

    Args:
        how: in the words of the message.
    """

    def __init__(self, how: str) -> None:
        super().__init__(
            f"the loop takes batches from Run.batches() {how}, so a resume would leave some out. Take each batch "
            "after the step before it, and let the loader load ahead (num_workers, prefetch_factor); one that no step "
            "trains on, from the loader itself"
        )


class BackwardPasses:
    """Counts this rank's backward passes between steps, while that is of interest: a call for each parameter.

    Args:
        parameters: returns those that are trained. Sharded ones are left out: their gradients come once a step.
        optimizers: that train them.
    """

    def __init__(self, parameters: Callable[[], Iterable[Tensor]], optimizers: Iterable[Optimizer] = ()) -> None:
        self._parameters = parameters
        self._optimizers = list(optimizers)
        self._unused = False  # whether there was one since the last step of an optimizer
        self._hooks: list[Any] = []
        self._seen = Counter[int]()
        self._complete = True

    def start(self, *, between: bool) -> None:
        """Count from now on; ``between``: nothing was done since the last step, so the next number is complete."""
        if not self._hooks:
            self._complete = between
            plain = [one for one in self._parameters() if one.requires_grad and not isinstance(one, DTensor)]
            self._hooks = [one.register_post_accumulate_grad_hook(self._see) for one in plain]
            self._hooks += [after_step(one, self._update) for one in self._optimizers]

    def stop(self) -> None:
        """Count no longer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def take(self) -> int:
        """How many there were since the last call, by the parameter that had most; 0: unknown."""
        if not self._hooks:
            return 0
        number = max(self._seen.values(), default=0) if self._complete else 0
        self._seen.clear()
        self._complete = True
        return number

    @property
    def carried(self) -> bool:
        """Whether gradients are there that no optimizer has used; those of a scale that was too large do not count."""
        if not (self._hooks and self._optimizers and self._unused):
            return False
        gradients = [one.grad for one in self._parameters() if one.grad is not None and not isinstance(one, DTensor)]
        return any(bool(one.any()) for one in gradients) and all(bool(one.isfinite().all()) for one in gradients)

    def _update(self, *_: object) -> None:
        self._unused = False

    def _see(self, parameter: Tensor) -> None:
        self._seen[id(parameter)] += 1
        self._unused = True


class FirstSteps:
    """The first steps of a pass.

    Attributes:
        first: batches that the first one took.
        least: the fewest that one of all steps took, so far.
        decided: whether more steps would tell no more.
    """

    def __init__(self) -> None:
        self.first = self.least = 0
        self.decided = False
        self._steps: list[tuple[int, int]] = []

    @property
    def late(self) -> bool:
        """Whether a step that takes no batches at the end of the pass has one that was taken before."""
        return self.first > (self.least if len(self._steps) > 1 else 1)

    def add(self, batches: int, passes: int) -> str | None:
        """Note a step of so many batches of this pass, and backward passes; returns a note if it is unclear.

        Raises:
            TakenAheadError: the first step took batches of later ones.
        """
        self.first = self.first or batches
        self.least = min(self.least or batches, batches)
        if self.decided:
            return None
        self._steps.append((batches, passes))
        return self._decide() if len(self._steps) > 1 else None

    def _decide(self) -> str | None:
        (first, passes), *later = self._steps
        if not passes or not all(two for _, two in later):
            self.decided = True
            return UNCLEAR.format(first, later[0][0]) if first > later[0][0] else None
        ratios = {Fraction(one, two) for one, two in later}
        (ratio, *others) = ratios
        alike = ratio.denominator == 1 or all(two == passes for _, two in later)
        if others or not alike or first <= ratio * passes:
            self.decided = True
        elif len(self._steps) == STEPS:
            raise TakenAheadError(
                f"before the steps that precede them: the first step took {first}, the next ones "
                f"{' and '.join(str(one) for one, _ in later)}, with backward passes that do not account for that"
            )
        return None
