"""Notices when the loss is not finite: says so once, or ends the run (``policy.onNonFinite``)."""

from __future__ import annotations

import math

from kittrain.rank.training.step_sync import Step
from kittrain.rank.world.distributed import World


class NonFiniteLossError(RuntimeError):
    """The ranks' mean loss is NaN or infinite, and the job is to stop then. Raised on all ranks after the same step."""


class LossWatch:
    """Looks at each step's loss, which is read for reports anyway: the mean of all ranks, equal on all of them.

    Args:
        world: rank 0 prints; its job says whether to stop.

    Attributes:
        problem: what is wrong with the last step's loss, such as ``the loss of step 31 is nan``; empty if it is finite,
            or the script has not given one.
        warning: the same with the step that it began at; empty if the last loss is finite.
        count: steps whose loss was not finite.
    """

    def __init__(self, world: World) -> None:
        self._print = world.print
        self._stop = world.env.job.policy.on_non_finite == "stop"
        self._warned = False
        self._since: Step | None = None  # the first step of those without a finite loss in between
        self.problem = self.warning = ""
        self.count = 0

    def step(self, step: Step) -> None:
        """A step has ended, and its loss is known.

        Raises:
            NonFiniteLossError: it is not finite, and the job is to stop then.
        """
        if math.isfinite(step.loss) or not step.has_loss:
            self._since, self.problem, self.warning = None, "", ""
            return
        self._since = self._since or step
        self.count += 1
        self.problem = f"the loss of step {step.number} is {step.loss}"
        self.warning = f"the loss is {self._since.loss} since step {self._since.number}"
        if self._stop:
            raise NonFiniteLossError(f"{self.problem}, and policy.onNonFinite is stop")
        if not self._warned:
            self._warned = True
            self._print(
                f"warning: {self.warning}; the last snapshot before it is kept, whatever snapshots.keep says "
                "(kitctl snapshots list): lower the learning rate, clip the gradients, or look at the data of that step"
            )
