"""The training state as tensors by name plus a rest without tensors, and back. Independent of the number of ranks.

Parameters and optimizer states use the plain module's parameter names, so that plain, compiled, DDP and FSDP2 models
save the same. A saved state is read in place into the tensors that are trained.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from kittrain.rank.snapshots.files import tree
from kittrain.rank.snapshots.files.tree import Split, Structure, Tensors
from kittrain.rank.snapshots.folder.snapshot import MODEL, IncompatibleError
from kittrain.rank.snapshots.state import optimizer_state
from kittrain.rank.snapshots.state.names import Names
from kittrain.rank.world.replicas import Part, has_sharded_parameters, part_of, reshard
from kittrain.torch_private.early import EXTRA_STATE

MAIN: Final = MODEL.removesuffix("/")  # the key of the model, which the model file holds
HOST: Final = "host"  # the key of the names of an optimizer's tensors that are in main memory on GPU ranks


class StateError(Exception):
    """The state could not be restored if it were saved; names the part, and the fix."""


class State:
    """What training changes, except the data cursor and the random number generators.

    Args:
        objects: by name: modules, optimizers, and anything with ``state_dict`` and ``load_state_dict``, such as a
            scheduler; equal on all ranks. None stands for none. The module named ``model``, or the only one, is the
            model of the model file. Without one of that name, the model consists of all modules.

    Attributes:
        model: the model.
        optimizers: by name.

    Raises:
        ValueError: there is no module, or a name cannot be used.
        TypeError: an object has no state.
    """

    def __init__(self, **objects: Any) -> None:
        given = {name: one for name, one in objects.items() if one is not None}
        self.model, self._modules = _split_modules({k: v for k, v in given.items() if isinstance(v, nn.Module)})
        self.optimizers = {name: one for name, one in given.items() if isinstance(one, Optimizer)}
        self._others = {name: one for name, one in given.items() if not isinstance(one, nn.Module | Optimizer)}
        for name, one in self._others.items():
            if not has_state(one):
                raise TypeError(_stateless(name, one))
        if reserved := ({MAIN} & {*self.optimizers, *self._others}) | ({HOST} & set(given)):
            raise ValueError(f"the name {reserved.pop()} is reserved: choose another one for this object")

    @property
    def signature(self) -> str:
        """SHA-256 over names, shapes and types of all parameters and buffers that the modules save."""
        saved = self.model_state() | {
            f"{key}/{name}": one
            for key, module in self._modules.items()
            for name, one in _module_state(module, Names(module)).items()
        }
        tensors = {name: one for name, one in saved.items() if not name.endswith(EXTRA_STATE)}
        facts = [(name, tuple(one.shape), str(one.dtype)) for name, one in tensors.items()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def optimizer_class(self) -> str:
        """The optimizer's class; of several, each with its name."""
        classes = {name: type(one).__name__ for name, one in self.optimizers.items()}
        return (
            ", ".join(f"{name} {one}" for name, one in classes.items())
            if len(classes) > 1
            else "".join(classes.values())
        )

    @property
    def sharded(self) -> bool:
        """Whether each rank holds only a part of a module (FSDP2)."""
        return any(has_sharded_parameters(module) for module in self.modules)

    @property
    def modules(self) -> list[nn.Module]:
        """All of them."""
        return [self.model, *self._modules.values()]

    @property
    def part(self) -> Part:
        """Which part of the modules this rank holds."""
        return part_of(*self.modules)

    @property
    def others(self) -> dict[str, Any]:
        """What is neither a module nor an optimizer, by name."""
        return self._others

    def buffers(self) -> list[Tensor]:
        """The buffers of all modules, in the same order on all ranks."""
        return [buffer for module in self.modules for buffer in module.buffers()]

    def model_state(self) -> dict[str, Any]:
        """The model's state dict by plain names, with the parameters themselves, not copies."""
        return _module_state(self.model, Names(self.model))

    def capture(self) -> tuple[Tensors, Any]:
        """The tensors themselves, not copies, and the rest, which is a copy if it is mutable.

        Raises:
            StateError: a part of it could not be restored.
        """
        found = self._live()
        return found.tensors, _frozen(found)

    def targets(self, structure: Structure, rest: Any) -> Tensors:
        """The tensors to read a saved state into: the trained ones, and new ones for what does not exist yet.

        This changes nothing. From the first byte that is read into them until ``apply``, the state is neither the old
        nor the saved one. Saved objects that this run does not have are left out.

        Args:
            structure: of the saved state.
            rest: of the saved state.

        Raises:
            IncompatibleError: it is the state of another model or optimizer.
        """
        live, mine, _ = self._live()
        needed = (name for name in live if name.startswith(MODEL) and EXTRA_STATE not in name)
        if missing := [name for name in needed if name not in structure]:
            raise IncompatibleError(f"its model has no {missing[0].removeprefix(MODEL)}")
        owners, host = self._owners(rest)
        targets = {}
        for name, (shape, dtype) in structure.items():
            known = live.get(name)
            if name.partition("/")[0] not in mine:
                continue
            if known is not None and (known.shape, known.dtype) == (shape, dtype):
                targets[name] = known
            elif name in owners:
                targets[name] = optimizer_state.new_tensor(owners[name], shape, dtype, host=name in host)
            else:
                targets[name] = torch.empty(shape, dtype=dtype, device=known.device if known is not None else "cpu")
        return targets

    def apply(self, tensors: Tensors, rest: Any) -> None:
        """Switch to a saved state: ``targets`` with all of it read, and its rest."""
        mine = self._live().rest
        saved = tree.join(tensors, {key: value for key, value in rest.items() if key in mine})
        for key, module in {MAIN: self.model, **self._modules}.items():
            _apply_module(module, saved[key])
        names = self.parameter_names()
        for key, optimizer in self.optimizers.items():
            optimizer_state.apply(optimizer, names, saved[key])
        for key, one in self._others.items():
            if saved.get(key):  # it may be new in this run
                one.load_state_dict(saved[key])

    def _live(self) -> Split:
        """All tensors by name, and the rest."""
        reshard(*self.modules)
        plain = self._plain_names()
        names = self._parameter_names(plain)
        parts: dict[str, Any] = {key: _module_state(module, own) for key, module, own in plain}
        parts |= {key: optimizer_state.live(one, names) for key, one in self.optimizers.items()}
        parts |= {key: one.state_dict() for key, one in self._others.items()}
        found = tree.split(parts)
        if any(parameter.device.type != "cpu" for parameter in names):
            states_of = [name for key in self.optimizers for name in tree.tensor_names(found.rest[key]["state"])]
            found.rest[HOST] = [name for name in states_of if found.tensors[name].device.type == "cpu"]
        return found

    def parameter_names(self) -> dict[Tensor, str]:
        """The plain name of each parameter; the first one if it has several.

        Raises:
            StateError: an optimizer has a parameter that is in none of the modules.
        """
        return self._parameter_names(self._plain_names())

    def _plain_names(self) -> list[tuple[str, nn.Module, Names]]:
        """Each module with its key and its names, which are found by a walk over all of its modules."""
        return [(key, module, Names(module)) for key, module in {MAIN: self.model, **self._modules}.items()]

    def _parameter_names(self, plain: Sequence[tuple[str, nn.Module, Names]]) -> dict[Tensor, str]:
        known: dict[Tensor, str] = {}
        for key, module, names in plain:
            prefix = "" if key == MAIN else f"{key}:"
            for name, one in module.named_parameters():
                known.setdefault(one, prefix + names.bare(name))
        for optimizer in self.optimizers.values():
            for number, group in enumerate(optimizer.param_groups):
                for one in group["params"]:
                    if one not in known:
                        raise StateError(
                            f"parameter group {number} of the optimizer has a parameter of shape {tuple(one.shape)} "
                            f"that the model does not have, so no snapshot would hold it: register it, or its module, "
                            f"in the model that Training or Run is given"
                        )
        return known

    def _owners(self, rest: Any) -> tuple[dict[str, Tensor], frozenset[str]]:
        """The parameter of each tensor of the optimizers' saved states, and which of these are in main memory.

        Raises:
            IncompatibleError: an optimizer has other parameter groups.
        """
        names = self.parameter_names()
        owners: dict[str, Tensor] = {}
        host: frozenset[str] = frozenset(rest.get(HOST, ()))
        for key, optimizer in self.optimizers.items():
            if key not in rest:
                raise IncompatibleError(f"it has no optimizer named {key}")
            owners |= optimizer_state.owners(optimizer, names, rest[key])
            if HOST not in rest:
                host |= optimizer_state.on_host(rest[key])
        return owners, host


def has_state(one: object) -> bool:
    """Whether an object can save and load its state."""
    return callable(getattr(one, "state_dict", None)) and callable(getattr(one, "load_state_dict", None))


def _stateless(name: str, one: object) -> str:
    """What is wrong with an object that was given by this name: ``optimizers is a list, which has no ...``."""
    text = f"{name} is {one!r}" if isinstance(one, str | int | float) else f"{name} is of type {type(one).__name__}"
    text += ", which has no state_dict and load_state_dict"
    if isinstance(one, Sequence) and any(isinstance(item, nn.Module) or has_state(item) for item in one):
        text += f": give each of its {len(one)} items by a name of its own, such as {name}_0={name}[0]"
    return text


def frozen(state: Any) -> Any:
    """An object's state that no longer changes: in new dicts, lists and tuples, and whole a copy if a leaf may change.

    Raises:
        StateError: a part of it could not be restored.
    """
    found = tree.split(state)
    opaque = [*found.opaque, *found.tensors.items()]
    return _frozen(Split(found.tensors, state, opaque) if opaque else found)


def _frozen(found: Split) -> Any:
    """A rest that no longer changes: itself if its leaves are immutable, else a copy.

    Raises:
        StateError: a part of it could not be restored.
    """
    if problem := tree.unloadable(found.opaque):
        path, value, error = problem
        raise StateError(
            f"{path} is {value!r}, which a snapshot cannot restore ({_brief(error)}): use numbers, text, "
            f"tensors, or lists and dicts of them, or allow its class with "
            f"torch.serialization.add_safe_globals"
        ) from error
    return copy.deepcopy(found.rest) if found.opaque else found.rest


def _split_modules(modules: dict[str, nn.Module]) -> tuple[nn.Module, dict[str, nn.Module]]:
    """The model, and the other modules by name."""
    if not modules:
        raise ValueError("there is no module to train: pass it as model=")
    if MAIN in modules:
        return modules[MAIN], {name: one for name, one in modules.items() if name != MAIN}
    if len(modules) == 1:
        return next(iter(modules.values())), {}
    model = nn.Module()
    for name, one in modules.items():
        if hasattr(model, name):
            raise ValueError(f"the name {name} is reserved: choose another one for this module")
        model.add_module(name, one)
    return model, {}


def _module_state(module: nn.Module, names: Names) -> dict[str, Any]:
    return {names.bare(name): one for name, one in module.state_dict(keep_vars=True).items()}


def _apply_module(module: nn.Module, saved: dict[str, Any]) -> None:
    """Restore a module's extra state; its tensors are set already."""
    names = Names(module)
    plain = {raw: names.bare(raw) for raw in module.state_dict(keep_vars=True)}
    module.load_state_dict({raw: saved[bare] for raw, bare in plain.items() if bare in saved}, strict=False)


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else type(error).__name__
