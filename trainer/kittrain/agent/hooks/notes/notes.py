"""All that is noted of a rank's training, and told at its end: wired to the calls that show it."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from kittrain.agent.hooks.notes.boolean_arguments import BooleanArguments
from kittrain.agent.hooks.notes.copied_generators import CopiedGenerators
from kittrain.agent.hooks.notes.diverged_models import DivergedModels
from kittrain.agent.hooks.notes.faded_rates import FadedRates
from kittrain.agent.hooks.notes.given_probabilities import GivenProbabilities
from kittrain.agent.hooks.notes.idle_steps import IdleSteps
from kittrain.agent.hooks.notes.left_gradients import LeftGradients
from kittrain.agent.hooks.notes.left_out_parameters import LeftOutParameters
from kittrain.agent.hooks.notes.loaded_names import LoadedNames
from kittrain.agent.hooks.notes.new_schedules import NewSchedules
from kittrain.agent.hooks.notes.repeated_samples import RepeatedSamples
from kittrain.agent.hooks.notes.sampler_orders import SamplerOrders
from kittrain.agent.hooks.notes.scaled_clips import ScaledClips
from kittrain.agent.hooks.notes.torch_warnings import TorchWarnings
from kittrain.agent.hooks.notes.training_evaluations import TrainingEvaluations
from kittrain.agent.hooks.notes.unaveraged_steps import UnaveragedSteps
from kittrain.agent.hooks.notes.unloaded_optimizers import UnloadedOptimizers
from kittrain.agent.hooks.notes.unseen_changes import UnseenChanges
from kittrain.agent.hooks.notes.untouched_norms import UntouchedNorms
from kittrain.agent.hooks.notes.zeroed_gradients import ZeroedGradients
from kittrain.system.imports import after_import


class Noted(Protocol):
    """What is told at the end, if there is anything to tell."""

    def tell(self) -> None:
        """Write it to the standard error."""
        ...


class Notes:
    """The notes of one rank.

    Args:
        orders: of its samplers.
        steps: how many it has taken.

    Attributes:
        resumed: of the files that it loads and saves.
    """

    def __init__(self, orders: SamplerOrders, steps: Callable[[], int]) -> None:
        self._orders = orders
        self._idle = IdleSteps()
        self._faded = FadedRates()
        self._left = LeftGradients()
        self._zeroed = ZeroedGradients(self._left.discarded)
        self._parameters = LeftOutParameters()
        self._names = LoadedNames(steps)
        self._unaveraged = UnaveragedSteps()
        self._schedules = NewSchedules()
        self.resumed = UnloadedOptimizers()
        self._changes = UnseenChanges(steps)
        self._generators = CopiedGenerators(steps)
        self._samples = RepeatedSamples(steps)
        self._evaluations = TrainingEvaluations(steps)
        self._norms = UntouchedNorms(steps)
        self._models = DivergedModels()
        self._probabilities = GivenProbabilities(steps)
        self._clips = ScaledClips()

    def watch(self) -> None:
        """Watch modules as the script imports them. A rank that imports none has no more exit handlers."""
        _watch("torch.optim.optimizer", self._schedules.watch_optimizers, self._idle, self._left, self._unaveraged)
        _watch("torch.optim.optimizer", lambda _: None, self._faded)
        _watch("torch.optim.lr_scheduler", self._schedules.watch_schedules, self._schedules)
        _watch("torch.optim.optimizer", self._zeroed.watch_optimizers, self._zeroed)
        _watch("torch.nn.modules.module", self._zeroed.watch_modules)
        _watch("torch.optim.optimizer", self.resumed.watch_optimizers, self.resumed)
        _watch("torch.nn.modules.module", self.resumed.watch_modules)
        _watch("torch.nn.parallel.distributed", self._parameters.watch, self._parameters)
        _watch("torch.nn.parallel.distributed", self._evaluations.watch, self._evaluations)
        _watch("torch.nn.parallel.distributed", self._models.watch, self._models)
        _watch("torch.distributed.algorithms.model_averaging.averagers", self._models.watch_averagers)
        _watch("torch.distributed.algorithms.join", self._models.watch_joins)
        _watch("torch.nn.modules.module", self._evaluations.watch_modules)
        _watch("torch.nn.modules.module", self._norms.watch, self._norms)
        _watch("torch", self._evaluations.watch_compiler)
        _watch("torch.utils.data.distributed", self._orders.watch, self._orders)
        _watch("torch.utils.data.dataloader", self._changes.watch, self._changes)
        _watch("torch.utils.data.dataloader", self._generators.watch, self._generators)
        _watch("torch.utils.data.dataloader", self._samples.watch, self._samples)
        _watch("torch.nn.modules.module", self._names.watch, self._names)
        _watch("torch.autograd", lambda _: None, self._probabilities)
        _watch("torch.amp.grad_scaler", self._clips.watch_scalers, self._clips)
        _watch("torch.nn.utils.clip_grad", self._clips.watch_clips)
        _watch("argparse", BooleanArguments().watch)
        warned = TorchWarnings()
        _watch("torch.nn.functional", warned.watch, warned)

    def formed(self) -> None:
        """A group has become the default one."""
        self._models.formed()

    def begins(self, tensors: Any, *, keeps_graph: bool) -> None:
        """A backward pass begins that is no evaluation's."""
        self._zeroed.begins(tensors, keeps_graph=keeps_graph)
        self._probabilities.begins(tensors)

    def passed(self, *, exchanged: bool) -> None:
        """It has ended, with or without a collective in it."""
        self._left.passed()
        self._models.passed(exchanged=exchanged)
        self._zeroed.passed()
        self._unaveraged.passed(exchanged=exchanged)

    def called(self, optimizer: Any) -> None:
        """An optimizer has taken a step."""
        self._idle.called(optimizer)
        self._faded.called(optimizer)
        self._left.called()
        self._zeroed.called(optimizer)
        self._parameters.called(optimizer)
        self._unaveraged.called()
        self._schedules.called(optimizer)
        self.resumed.called(optimizer)


def _watch(name: str, watch: Callable[[ModuleType], object], *noted: Noted) -> None:
    def imported(module: ModuleType) -> None:
        watch(module)
        for one in noted:
            atexit.register(one.tell)

    after_import(name, imported)
