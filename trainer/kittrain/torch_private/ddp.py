"""DistributedDataParallel: which gradients are averaged together, in which order, and by which communication hooks.

DDP averages the gradients of several parameters at once, in buckets. After a process's first backward pass it forms the
buckets anew, in the order in which the gradients became ready.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Buckets = list[list[int]]  # the numbers of the parameters in each bucket, by ``averaged_parameters``


def averaged_parameters(ddp: DistributedDataParallel) -> list[nn.Parameter]:
    """The parameters whose gradients are averaged, in DDP's order."""
    module: Any = ddp  # torch's stubs lack most of the names used here
    parameters, _ = module._build_params_for_reducer()  # noqa: SLF001
    return cast("list[nn.Parameter]", parameters)


def averaged_names(ddp: DistributedDataParallel) -> list[str]:
    """The names of these parameters, also if all that are frozen now were frozen since; empty if that is not clear.

    DDP looks for what it is to ignore by a name that has a dot in front, if it is of the outermost module.
    """
    ignored = getattr(ddp, "parameters_to_ignore", ())
    named = [(name, one) for name, one in ddp.module.named_parameters() if "." not in name or name not in ignored]
    candidates = [name for name, one in named if one.requires_grad], [name for name, _ in named]
    number = _log_data(ddp).get("num_parameter_tensors")
    return next((names for names in candidates if len(names) == number), [])


def rebuilds_buckets(ddp: DistributedDataParallel) -> bool:
    """Whether DDP forms its buckets anew; it does so neither if it finds unused parameters nor without a reducer."""
    return hasattr(ddp, "reducer") and (ddp.static_graph or not ddp.find_unused_parameters)


def rebuilt_buckets(ddp: DistributedDataParallel) -> Buckets | None:
    """The buckets that it keeps from now on; None if there was no backward pass to form them by.

    Call it on all ranks after the same backward pass: DDP may form them now, which is collective, and not with the next
    forward pass. A static graph is known after the second backward pass only.

    Raises:
        RuntimeError: the last backward pass has not reached all parameters, which DDP reports in the next forward pass.
    """
    module: Any = ddp
    if module.reducer._rebuild_buckets():  # noqa: SLF001
        module._has_rebuilt_buckets = True  # noqa: SLF001  as DDP's forward pass does
    module.logger.set_runtime_stats_and_log()  # notes the new buckets, as DDP does in its first ten steps
    text = _log_data(module).get("rebuilt_per_bucket_param_indices", "")
    return [[int(number) for number in bucket.split()] for bucket in text.split(", ")] if text else None


def is_static_after_one_step(ddp: DistributedDataParallel) -> bool:
    """Whether it has a static graph that had one forward and backward pass, of which DDP does not note the order.

    Call it after ``rebuilt_buckets``.
    """
    return ddp.static_graph and _log_data(ddp).get("iteration") == 1


class ReadyOrder:
    """The order in which the gradients of a DDP module's next backward pass become ready.

    DDP notes it itself, but of a static graph only in the second backward pass of a process.
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self._parameters = averaged_parameters(ddp)
        self._ready: dict[int, None] = {}
        self._hooks = [
            one.register_post_accumulate_grad_hook(self._note(number)) for number, one in enumerate(self._parameters)
        ]

    def __bool__(self) -> bool:
        """Whether there was a backward pass."""
        return bool(self._ready)

    def end(self) -> list[int]:
        """The numbers of all parameters, unused ones last, as DDP puts them; nothing is noted from now on."""
        for hook in self._hooks:
            hook.remove()
        unused = [number for number in range(len(self._parameters)) if number not in self._ready]
        return [*self._ready, *unused]

    def _note(self, number: int) -> Callable[[Tensor], None]:
        def note(_: Tensor) -> None:
            self._ready.pop(number, None)  # a parameter that is used twice is ready after the second time
            self._ready[number] = None

        return note


def call_before_forward(ddp: DistributedDataParallel, function: Callable[[], bool]) -> None:
    """Call it where DDP forms its buckets anew: before each forward pass that has gradients, until it returns true."""

    def hook(*_: Any) -> None:
        if torch.is_grad_enabled() and function():
            handle.remove()

    handle = ddp.register_forward_pre_hook(torch.compiler.disable(hook))


def set_buckets(ddp: DistributedDataParallel, buckets: Sequence[Sequence[int]]) -> None:
    """Give a DDP module, between two steps, the buckets of an earlier process. Collective.

    Only DDP's own code can form buckets for good, from parameters in some order. So the module gets a new reducer, as a
    copied module does, that knows the parameters in the order of these buckets.
    """
    module: Any = ddp
    module.reducer._rebuild_buckets()  # noqa: SLF001  fails if the last backward pass has not ended
    parameters, sparse = module._build_params_for_reducer()  # noqa: SLF001
    order = [number for bucket in buckets for number in bucket]
    parameters, sparse = [parameters[number] for number in order], [sparse[number] for number in order]
    builtin = _builtin_hook(module)
    names = module._build_debug_param_to_name_mapping(parameters)  # noqa: SLF001
    module._ddp_init_helper(parameters, sparse, names, module.static_graph)  # noqa: SLF001
    _configure_reducer(module, parameters)
    if builtin is not None:
        module._register_builtin_comm_hook(builtin)  # noqa: SLF001
    for hook, state in comm_hooks(module):
        module.logger._set_comm_hook_name(hook.__qualname__)  # noqa: SLF001
        _register_comm_hook(module.reducer, state, hook)
    module.reducer._push_all_rebuilt_params()  # noqa: SLF001
    module._has_rebuilt_buckets = module.reducer._rebuild_buckets()  # noqa: SLF001


def comm_hooks(ddp: DistributedDataParallel) -> list[tuple[Callable[..., Any], Any]]:
    """Its communication hooks, each with its state."""
    return list(getattr(ddp, "_comm_hooks", ()))


def _configure_reducer(module: Any, parameters: Sequence[nn.Parameter]) -> None:
    """Repeat what DDP has told its former reducer since that was made."""
    if module.static_graph:
        module._static_graph_delay_allreduce_enqueued = False  # noqa: SLF001  the reducer's first step is to come
        module.reducer._set_static_graph()  # noqa: SLF001
        module.logger._set_static_graph()  # noqa: SLF001
    if module.mixed_precision is not None:
        module.reducer._set_mixed_precision_param_dtype(module.mixed_precision.param_dtype)  # noqa: SLF001
    if any(hasattr(one, "_in_backward_optimizers") for one in parameters):
        module.reducer._set_optimizer_in_backward()  # noqa: SLF001
    if getattr(module, "_require_manual_backward_finalization", False):  # newer versions of torch
        module.require_manual_backward_finalization = True


def _builtin_hook(module: Any) -> Any:
    """The hook in C++ that it uses, if any: DDP keeps only its name."""
    name = _log_data(module).get("comm_hook", "")
    kind, _, member = name.partition(".")
    return getattr(dist.BuiltinCommHookType, member) if kind == "BuiltinCommHookType" else None


def _log_data(module: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", module._get_ddp_logging_data())  # noqa: SLF001


def _register_comm_hook(reducer: Any, state: Any, hook: Callable[..., Any]) -> None:
    torch_distributed: Any = dist
    torch_distributed._register_comm_hook(reducer, state, hook)  # noqa: SLF001
