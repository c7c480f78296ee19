"""Notices when a script evaluates its model: it is in evaluation mode as a whole, and gradients are off.

Either alone is no evaluation. A part of a model may be in evaluation mode while it is trained, as frozen batch norms
are, or all of it, as the discriminator of a GAN is in the generator's step; gradients are off in much of torch's own
code. So nothing is noticed of a script that leaves one of them out. A script may have several models, each with an
optimizer of its own. An evaluation ends as one of them returns to training mode, or else, since some scripts forget
that, at the next backward pass. Only ``Module.eval`` is always wrapped: a step does not pay for it. Imports no torch.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

OPTIMIZERS: Final = 8  # that are known: some scripts have one for each layer


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
        self._models: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()  # whether these hold them
        self._restore: list[tuple[Any, str, Callable[..., Any]]] = []

    def watch(self, modules: ModuleType) -> None:
        """Watch the methods of torch's class of modules; torch itself may not have been imported wholly."""
        module = modules.Module
        evaluate = module.eval

        @functools.wraps(evaluate)
        def noted_eval(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = evaluate(model, *args, **kwargs)
            if self._trained and not self.pending:
                with suppress(Exception):  # a model of the script's own may refuse anything
                    if not self._is_part(model) and self._is_trained(model):
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

    def end(self) -> None:
        """The model is trained from now on."""
        self.pending = False
        for owner, name, function in self._restore:
            setattr(owner, name, function)
        self._restore.clear()
        if self._running:
            self._running = False
            self._ends()

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

        @functools.wraps(function)
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
