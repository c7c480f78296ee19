"""Notices when a script evaluates its model: it is in evaluation mode as a whole, and gradients are off.

Either alone is no evaluation. A part of a model may be in evaluation mode while it is trained, as frozen batch norms
are, or all of it, as the discriminator of a GAN is in the generator's step; gradients are off in much of torch's own
code. So nothing is noticed of a script that leaves one of them out. A script may have several models, each with an
optimizer of its own. An evaluation ends as one of them returns to training mode, or else, since some scripts forget
that, at the next backward pass. Only ``Module.eval`` is always wrapped: a step does not pay for it.

Such a script trains without dropout and with fixed batch norms from then on, which a rank says at its end. Imports no
torch.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.outcome.rank_output import STILL_EVALUATES
from kittrain.system.by_identity import ByIdentity

OPTIMIZERS: Final = 8  # that are known: some scripts have one for each layer
LOOKS: Final = 100  # evaluations of which the model's layers are looked at


def _nothing(*_: object, **__: object) -> None:
    pass


class ScriptEvaluations:
    """The evaluations of one rank, of the models that its optimizers train.

    Args:
        begins: called when one begins.
        ends: called when it ends.
    """

    def __init__(self, begins: Callable[[], object], ends: Callable[[], object]) -> None:
        self._begins = begins
        self._ends = ends
        self.pending = False  # the model is in evaluation mode
        self._running = False
        self._fewest = 0  # parameters that an optimizer trains
        self._trained: list[tuple[Callable[[], Any], ...]] = []  # by optimizer, references to its first and last one
        self._models: ByIdentity[bool] = ByIdentity()  # whether these hold them
        self._restore: list[tuple[Any, str, Callable[..., Any]]] = []
        self._looks = LOOKS
        self._switched: list[Callable[[], Any]] = []  # layers that an evaluation has put into evaluation mode
        self._kept: dict[str, int] = {}  # by kind, how many of them stayed so in the training after it

    def watch(self, modules: ModuleType) -> None:
        """Watch the methods of torch's class of modules; torch itself may not have been imported wholly."""
        module = modules.Module
        evaluate = module.eval

        @in_place_of(evaluate)
        def noted_eval(model: Any, *args: Any, **kwargs: Any) -> Any:
            begins = False
            if self._trained and not self.pending:
                with suppress(Exception):  # a model of the script's own may refuse anything
                    begins = not self._is_part(model) and self._is_trained(model)
                    if begins:
                        self._switch(model)
            result = evaluate(model, *args, **kwargs)
            if begins:
                with suppress(Exception):
                    self._begin(module, modules.torch)
            return result

        module.eval = noted_eval

    def trains(self, optimizer: Any) -> None:
        """An optimizer takes its first step; of those of a large model's single layers, these are the first few."""
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        self._trained = [one for one in self._trained if None not in [reference() for reference in one]]
        if parameters and len(self._trained) < OPTIMIZERS:
            self._fewest = min(self._fewest or len(parameters), len(parameters))
            self._trained.append((weakref.ref(parameters[0]), weakref.ref(parameters[-1])))
            self._models.clear()

    def backward_begins(self) -> None:
        """A backward pass of some model begins: after an evaluation that has not ended, it is trained again."""
        if self._running and not self._kept and self._switched:
            layers = [layer for reference in self._switched if (layer := reference()) is not None]
            if layers and not any(layer.training for layer in layers):
                for layer in layers:
                    kind = type(layer).__name__
                    self._kept[kind] = self._kept.get(kind, 0) + 1
        self.end()

    def tell(self) -> None:
        """Say at the end of the script that its model has stayed in evaluation mode."""
        if self._kept:
            layers = ", ".join(f"{number} {kind}" for kind, number in sorted(self._kept.items()))
            sys.stderr.write(f"note: {STILL_EVALUATES}{layers}\n")

    def end(self) -> None:
        """The model is trained from now on."""
        self.pending = False
        for owner, name, function in self._restore:
            setattr(owner, name, function)
        self._restore.clear()
        if self._running:
            self._running = False
            self._ends()

    def _switch(self, model: Any) -> None:
        """Note the layers that work in another way in evaluation mode, and are not in it."""
        self._switched.clear()
        if self._looks and not self._kept:
            self._looks -= 1
            layers = (one for one in model.modules() if one.training)
            self._switched = [weakref.ref(one) for one in layers if _drops(one) or _normalizes(one)]

    def _begin(self, module: Any, torch: ModuleType) -> None:
        self.pending = True
        self._wrap(module, "train", before=self._trains_again)
        self._look(torch)
        if not self._running:
            self._wrap(torch.set_grad_enabled, "__init__", after=lambda *_, **__: self._look(torch))
            self._wrap(torch.inference_mode, "__enter__", after=lambda *_: self._look(torch))

    def _look(self, torch: ModuleType) -> None:
        if not self._running and not torch.is_grad_enabled():
            self._running = True
            self._begins()

    def _trains_again(self, model: Any, mode: bool = True) -> None:  # noqa: FBT001,FBT002  as torch has it
        if mode and self._is_trained(model):
            self.end()

    def _wrap(
        self, owner: Any, name: str, before: Callable[..., object] = _nothing, after: Callable[..., object] = _nothing
    ) -> None:
        function = vars(owner)[name]

        @in_place_of(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):
                before(*args, **kwargs)
            result = function(*args, **kwargs)
            if self.pending:
                with suppress(Exception):
                    after(*args, **kwargs)
            return result

        setattr(owner, name, call)
        self._restore.append((owner, name, function))

    def _is_part(self, model: Any) -> bool:
        """Whether a module is one of many layers, as frozen batch norms are, which scripts may set in each step."""
        return next(model.children(), None) is None and sum(1 for _ in model.parameters(recurse=False)) < self._fewest

    def _is_trained(self, model: Any) -> bool:
        """Whether a module holds all that an optimizer trains, by the first and the last of it."""
        known = self._models.get(model)
        if known is None:
            held = {id(one) for one in model.parameters()}
            known = any(all(id(reference()) in held for reference in references) for references in self._trained)
            self._models[model] = known
        return known


def _drops(layer: Any) -> bool:
    """Whether a layer leaves something out: a dropout of torch's, an attention or a recurrent layer with one."""
    share = getattr(layer, "p" if "Drop" in type(layer).__name__ else "dropout", None)
    return isinstance(share, float) and share > 0


def _normalizes(layer: Any) -> bool:
    """Whether a layer is a batch norm with statistics of its own."""
    return getattr(layer, "track_running_stats", False) is True
