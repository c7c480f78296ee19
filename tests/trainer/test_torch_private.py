"""Private names of torch are used in one module only; reports those that the installed version lacks."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel, distributed
from torch.utils.data import DataLoader, IterableDataset, dataloader

import kittrain
from kittrain import torch_private
from kittrain.torch_private import early, hooks
from kittrain.torch_private.early import EXTRA_STATE, WRAPPED_MODULES
from kittrain.torch_private.elastic import ElasticAgent
from kittrain.torch_private.fsdp import (
    OWN_EXCHANGES,
    PENDING,
    REPLICATED,
    RESET_HERE,
    CannotRenewError,
    ReplicatedShards,
)
from kittrain.torch_private.ranks import backward, copy_all

PACKAGE: Final = Path(torch_private.__file__).parent
# Private names that are not torch's: of the standard library, and of kittrain's step_sync.
OTHERS_NAMES: Final = {
    "_bootstrap",
    "_communicate",
    "_config",
    "_current_frames",
    "_exit",
    "_fields",
    "_finalize_join",
    "_get_value",
    "_join_exited_workers",
    "_registry",
    "_run_exitfuncs",
    "_set_native_id",
    "_shutdown",
    "_wait",
}

# Names that the package imports or mentions.
MODULES: Final = ("torch._dynamo", "torch._subclasses.fake_tensor")
# Hooks that torch's agent calls on itself, with the arguments that kittrain relies on.
AGENT_HOOKS: Final = {
    "_rendezvous": ["self", "worker_group"],
    "_start_workers": ["self", "worker_group"],
    "_monitor_workers": ["self", "worker_group"],
    "_stop_workers": ["self", "worker_group"],
    "_shutdown": ["self"],
    "_exit_barrier": ["self"],
}
AGENT_FIELDS: Final = ("_remaining_restarts",)
IGNORED: Final = "_ddp_params_and_buffers_to_ignore"
WAITS: Final = (
    early.RUN_BACKWARD,
    early.BROADCAST_BUFFERS,
    early.BROADCAST_MODEL,
    early.COMPARE_MODELS,
    early.WAITS_FOR_BUILD,
    early.WAITS_FOR_TENSOR,
    *early.WAITS_FOR_WORKERS,
)
HOOKS: Final = (*hooks.MODULE, *hooks.PARAMETER, *hooks.OPTIMIZER)
TIMEOUT: Final = "_set_pg_timeout"
DEFAULT_STORE: Final = "_get_default_store"
CREATE_STORE: Final = "_create_c10d_store"
SET_GROUP: Final = "_update_default_pg"
COUNT_COLLECTIVES: Final = ("_world", "_get_sequence_number_for_group")
ITERATOR: Final = "_iterator"
FETCHER: Final = "_dataset_fetcher"
WORKER_PASS: Final = ("_MultiProcessingDataLoaderIter", "_next_data")  # a pass with workers, and what gives a batch
# Of DDP, its reducer and logger: ``tests/trainer/rank/world/test_replica_state.py`` shows that they do what is
# expected.
DDP_METHODS: Final = (
    "_build_debug_param_to_name_mapping",
    "_build_params_for_reducer",
    "_ddp_init_helper",
    "_get_ddp_logging_data",
    "_register_builtin_comm_hook",
)
DDP_FIELDS: Final = ("_comm_hooks", "_has_rebuilt_buckets", "_static_graph_delay_allreduce_enqueued")
REDUCER_METHODS: Final = (
    "_push_all_rebuilt_params",
    "_rebuild_buckets",
    "_set_mixed_precision_param_dtype",
    "_set_optimizer_in_backward",
    "_set_static_graph",
)
LOGGER_METHODS: Final = ("_set_comm_hook_name", "_set_static_graph", "set_runtime_stats_and_log")
REGISTER_HOOK: Final = "_register_comm_hook"
IN_BACKWARD: Final = "_in_backward_optimizers"
MANUAL_END: Final = "_require_manual_backward_finalization"  # of newer versions only
MAKE_GROUP: Final = "_new_process_group_helper"
COPY_ALL: Final = "_foreach_copy_"
# Of FSDP2 and its meshes: ``tests/trainer/test_sharded_survivors.py`` shows that they do what is expected.
FSDP_STATE_OF: Final = "_get_fsdp_state"
FSDP_STATE: Final = ("_comm_ctx", "_is_root", "_modules_to_run_forward", "_state_ctx", "_training_state")
FSDP_GROUPS: Final = "_fsdp_param_groups"
FSDP_ONLY_GROUP: Final = "_fsdp_param_group"  # of older versions
FSDP_GROUP: Final = ("_all_gather_comm", "_all_gather_result", "_all_reduce_hook", "_reduce_scatter_comm")
FSDP_GROUP_IN_A_STEP: Final = (*PENDING, "_post_forward_indices", "_to_sharded", "_training_state")
FSDP_GROUP_PUBLIC: Final = ("fsdp_params", "mesh_info", "post_forward_mesh_info")
FSDP_PARAMETER: Final = ("_init_shard_mesh", "_shard_mesh")
FSDP_PARAMETER_PUBLIC: Final = ("is_dtensor", "mesh_info", "post_forward_mesh_info")
FSDP_WHOLE_PARAMETER: Final = "_unsharded_param"
FSDP_IN_A_STEP: Final = {"iter_forward_root", "post_backward_final_callback_queued"}
FSDP_EXCHANGES_IN_A_STEP: Final = {"all_gather_state", "post_forward_order", "reduce_scatter_state"}
MESH: Final = ("_flatten_mapping", "_root_mesh")
MESHES: Final = "_mesh_resources"  # of older versions
GROUPS_MADE: Final = "group_count"  # of ``_world``
LOG_LEVEL: Final = "_ZN3c1011initLoggingEv"


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def private_names(tree: ast.AST) -> Iterator[str]:
    """Private names that are imported or looked up, but in ``self`` or ``super()``, and those that are strings."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "torch":
                yield from (part for alias in node.names for part in (*module.split("."), alias.name) if private(part))
            case ast.Import():
                yield from (part for alias in node.names for part in alias.name.split(".") if private(part))
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if private(name):
                yield name
            case ast.Constant(value=str(text)) if text.replace(".", "").isidentifier():  # getattr, import_module
                yield from (part for part in text.split(".") if private(part))


def own_names(kind: type) -> Iterator[str]:
    """Private names that a class defines, or looks up in ``self`` or ``super()``."""
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # of a class that C++ or another class makes, such as an autograd function's
        return
    tree = ast.parse(inspect.cleandoc("\n" + source))
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")), attr=name)
                | ast.FunctionDef(name=name)
            ):
                yield from [name] if private(name) else []


def torchs_names(kind: type) -> set[str]:
    """Private names that the bases of a class have from torch."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "torch"]
    return {name for base in bases for name in (*own_names(base), *vars(base)) if private(name)}


def classes_that_extend_torch() -> Iterator[type]:
    for found in pkgutil.walk_packages(kittrain.__path__, "kittrain."):
        if found.name.endswith("__main__") or found.name.startswith(UNIMPORTABLE):
            continue
        for kind in vars(importlib.import_module(found.name)).values():
            if isinstance(kind, type) and kind.__module__ == found.name and torchs_names(kind):
                yield kind


UNIMPORTABLE: Final = ("kittrain.workloads.", "kittrain.integrations.")  # they need data, or other frameworks
# Names that other frameworks have no public ones for; `make test-frameworks` runs with the real packages.
FRAMEWORKS_NAMES: Final = {
    "huggingface.py": {"_load_best_model", "_load_rng_state"},
    "jax_cluster.py": {"_src"},
    "lightning_position.py": {
        *("_batches_that_stepped", "_combined_loader", "_data_fetcher", "_restarting", "_resuming_from_checkpoint"),
    },
    "stacks.py": {"_connect", "_http_backoff_base", "_sleep_backoff"},  # frames of httpcore, the hub's client, urllib3
    "trackers.py": {"_get_next_version"},
}
OTHERS: Final = sorted(path for path in PACKAGE.parent.rglob("*.py") if PACKAGE not in path.parents)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_no_other_module_uses_a_private_name(path: Path) -> None:
    allowed = OTHERS_NAMES | FRAMEWORKS_NAMES.get(path.name, set())
    assert set(private_names(ast.parse(path.read_text(encoding="utf-8")))) <= allowed


def test_no_other_module_uses_a_private_name_of_a_base_class_from_torch() -> None:
    kinds = set(classes_that_extend_torch())
    assert ElasticAgent in kinds
    used = {
        kind.__qualname__: set(own_names(kind)) & torchs_names(kind)
        for kind in kinds
        if not kind.__module__.startswith(torch_private.__name__)
    }
    assert {name: found for name, found in used.items() if found} == {}


def test_every_private_name_of_the_package_is_tested_here() -> None:
    used = {name for path in PACKAGE.glob("*.py") for name in private_names(ast.parse(path.read_text("utf-8")))}
    used |= set(own_names(ElasticAgent))
    parts = {part for name in MODULES for part in name.split(".") if private(part)}
    assert used == {
        *parts,
        *AGENT_HOOKS,
        *AGENT_FIELDS,
        IGNORED,
        TIMEOUT,
        LOG_LEVEL,
        SET_GROUP,
        CREATE_STORE,
        DEFAULT_STORE,
        *COUNT_COLLECTIVES,
        *(name for name in early.EXCHANGES if private(name)),
        ITERATOR,
        FETCHER,
        *WORKER_PASS,
        *DDP_METHODS,
        *DDP_FIELDS,
        *REDUCER_METHODS,
        *(name for name in LOGGER_METHODS if private(name)),
        REGISTER_HOOK,
        IN_BACKWARD,
        MANUAL_END,
        MAKE_GROUP,
        COPY_ALL,
        FSDP_STATE_OF,
        *FSDP_STATE,
        FSDP_GROUPS,
        FSDP_ONLY_GROUP,
        *FSDP_GROUP,
        *FSDP_GROUP_IN_A_STEP,
        *FSDP_PARAMETER,
        FSDP_WHOLE_PARAMETER,
        *MESH,
        MESHES,
        EXTRA_STATE,
        *WRAPPED_MODULES,
        *HOOKS,
        *(function for _, function in WAITS if private(function)),
    }


@pytest.mark.parametrize("module", MODULES)
def test_torch_has_the_module(module: str) -> None:
    importlib.import_module(module)


@pytest.mark.parametrize("hook", AGENT_HOOKS)
def test_torchs_agent_has_the_hook_and_calls_it(hook: str) -> None:
    assert (
        list(inspect.signature(getattr(SimpleElasticAgent, hook)).parameters)[: len(AGENT_HOOKS[hook])]
        == AGENT_HOOKS[hook]
    )
    assert f"self.{hook}(" in inspect.getsource(SimpleElasticAgent)


@pytest.mark.parametrize("field", AGENT_FIELDS)
def test_torchs_agent_has_the_field(field: str) -> None:
    assert field in own_names(SimpleElasticAgent)


def test_the_timeout_of_a_process_group_can_be_set() -> None:
    assert hasattr(dist, "set_timeout") or hasattr(distributed_c10d, TIMEOUT)


def test_modules_parameters_and_optimizers_have_their_hooks_by_number() -> None:
    module = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(module.parameters())
    known = hooks.NewHooks([module], [optimizer])
    registered = [
        module.register_forward_hook(print),
        module.register_forward_pre_hook(print),
        module.register_full_backward_hook(print),
        module.register_full_backward_pre_hook(print),
        module.weight.register_hook(print),
        module.weight.register_post_accumulate_grad_hook(print),
        optimizer.register_step_pre_hook(print),
        optimizer.register_step_post_hook(print),
    ]
    owners = (*((module, name) for name in hooks.MODULE), *((module.weight, name) for name in hooks.PARAMETER))
    found = [getattr(*one) for one in (*owners, *((optimizer, name) for name in hooks.OPTIMIZER))]
    assert sorted(number for one in found for number in one) == sorted(one.id for one in registered)
    known.remove()
    assert not any(found)


def test_ddp_reads_which_parameters_it_ignores() -> None:
    assert f'"{IGNORED}"' in inspect.getsource(DistributedDataParallel)


def test_ddp_has_the_names_by_which_buckets_are_kept() -> None:
    assert set(DDP_METHODS) | set(DDP_FIELDS) <= set(own_names(DistributedDataParallel))
    assert set(REDUCER_METHODS) <= set(dir(dist.Reducer))
    assert set(LOGGER_METHODS) <= set(dir(dist.Logger))
    assert hasattr(dist, REGISTER_HOOK)
    assert IN_BACKWARD in inspect.getsource(distributed)
    parameters = list(inspect.signature(DistributedDataParallel._ddp_init_helper).parameters)
    assert parameters == [
        "self",
        "parameters",
        "expect_sparse_gradient",
        "param_to_name_mapping",
        "static_graph",
    ]


@pytest.fixture
def sharded(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A sharded model of a lone rank, on a mesh with one replica."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    # By its name: torch would remember the equal mesh of another test.
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", request.node.name))
    yield fully_shard(nn.Linear(2, 2), mesh=mesh)
    dist.destroy_process_group()


def test_fsdp_has_the_names_by_which_its_groups_are_renewed(sharded: Any) -> None:
    renewable(sharded)
    sharded(torch.ones(1, 2))
    state = getattr(sharded, FSDP_STATE_OF)()
    (group,) = getattr(state, FSDP_GROUPS, None) or [getattr(state, FSDP_ONLY_GROUP)]
    parameter, mesh = group.fsdp_params[0], group.mesh_info.mesh
    assert {*FSDP_STATE} <= {*vars(state)}
    assert {*FSDP_GROUP, *FSDP_GROUP_PUBLIC} <= {*vars(group)}
    assert {*FSDP_PARAMETER_PUBLIC} <= {*vars(parameter)}
    if hasattr(sharded, "reset_iter_state"):
        assert {*FSDP_PARAMETER} <= {*vars(parameter), *dir(type(parameter))}
        assert {*MESH} <= {*vars(mesh), *dir(type(mesh))}
    else:
        assert {*vars(state._state_ctx)} >= FSDP_IN_A_STEP
        assert {*vars(state._comm_ctx)} >= FSDP_EXCHANGES_IN_A_STEP
        assert {*FSDP_GROUP_IN_A_STEP} <= {*vars(group), *dir(type(group))}
        assert {FSDP_WHOLE_PARAMETER, "unsharded_accumulated_grad"} <= {*vars(parameter)}
        assert getattr(importlib.import_module("torch.distributed.device_mesh"), MESHES).get_root_mesh(mesh) is mesh
    assert type(group.mesh_info).__name__ == REPLICATED
    assert tuple(type(getattr(group, name)).__name__ for name in (FSDP_GROUP[0], FSDP_GROUP[3])) == OWN_EXCHANGES
    assert hasattr(distributed_c10d._world, GROUPS_MADE)


def test_a_torch_without_what_is_needed_is_told(sharded: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    renewable(sharded)
    for name in ("reset_iter_state", FSDP_STATE_OF):
        with monkeypatch.context() as changed:
            changed.setattr(torch, "__version__", "2.8.0")
            changed.delattr(FSDPModule, name, raising=False)
            with pytest.raises(CannotRenewError, match=r"torch 2\.8\.0 cannot take back a step"):
                ReplicatedShards([sharded], Barriers)


class Barriers:
    """Those of a replica of one rank; keeps what was asked of them."""

    seen: ClassVar[list[str]] = []
    during: ClassVar[list[str]] = [""]

    def __init__(self, group: dist.ProcessGroup) -> None:
        assert group.size() == 1
        self.seen.append("made")

    def arrive(self) -> None:
        self.seen.append(self.during[0])

    def wait(self) -> None:
        self.seen.append("wait")

    def close(self) -> None:
        self.seen.append("close")


def renewable(sharded: Any) -> None:
    if not (hasattr(sharded, "reset_iter_state") or torch.__version__.startswith(RESET_HERE)):
        pytest.skip(f"torch {torch.__version__} cannot take back a step of FSDP2")


def divide_without_replicas(_: Any) -> Any:
    return fully_shard(nn.Linear(2, 2), mesh=init_device_mesh("cpu", (1,)))


def make_a_group(model: Any) -> Any:
    dist.new_group([0])
    return model


def set_a_hook(model: Any) -> Any:
    model.set_all_reduce_hook(lambda _: None)
    return model


def use_another_mesh(model: Any) -> Any:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("other", "mesh"))
    other: Any = fully_shard(nn.Linear(2, 2), mesh=mesh)
    return nn.Sequential(model, other)


def use_a_part_of_a_mesh(_: Any) -> Any:
    mesh = init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("pipeline", "replicate", "shard"))
    return fully_shard(nn.Linear(2, 2), mesh=mesh["replicate", "shard"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (divide_without_replicas, "the model is sharded without replicas"),
        (make_a_group, "process groups besides those of the model's mesh"),
        (set_a_hook, "the script has set how FSDP2 exchanges"),
        (use_another_mesh, "on more than one mesh"),
        (use_a_part_of_a_mesh, "not one of all ranks in their order"),
    ],
)
def test_what_cannot_be_renewed_is_told(sharded: Any, change: Callable[[Any], Any], why: str) -> None:
    renewable(sharded)
    with pytest.raises(CannotRenewError, match=why):
        ReplicatedShards([change(sharded)], Barriers)


def test_a_rank_keeps_its_part(sharded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    renewable(sharded)
    shards = ReplicatedShards([sharded], Barriers)
    monkeypatch.setattr(type(shards._mesh), "size", lambda _, dim: (2, 2)[dim])
    shards.check(2, 4)
    with pytest.raises(CannotRenewError, match="3 ranks cannot hold replicas of a model in 2 parts"):
        shards.check(0, 3)
    with pytest.raises(CannotRenewError, match="rank 3 of 4 holds part 1 of the model, and not 0"):
        shards.check(3, 4)


def test_ranks_of_a_replica_arrive_once_gradients_are_usually_complete(sharded: Any) -> None:
    renewable(sharded)
    shards = ReplicatedShards([sharded], Barriers)

    def step(*, passes: int = 1) -> list[str]:
        Barriers.seen.clear()
        for _ in range(passes):
            Barriers.during[0] = "backward"
            sharded(torch.ones(1, 2)).sum().backward()
        Barriers.during[0] = "update"
        shards.wait_for_replica()
        assert Barriers.seen.pop() == "wait"
        return [*Barriers.seen]

    shards.watch(on=True)
    assert step() == ["made", "update"], "it is not known when they are complete"
    assert step() == step() == ["backward"]
    assert step(passes=2) == ["backward", "update"]
    assert step(passes=2) == ["backward"]
    assert step() == ["update"]
    Barriers.seen.clear()
    shards.reset()
    assert Barriers.seen == ["close"]
    assert step() == ["made", "update"], "as on a new rank"
    shards.watch(on=False)
    ReplicatedShards([sharded], Barriers)  # nothing of the script's own is left behind


def test_a_renewed_mesh_has_the_new_groups_and_the_model_trains_on(sharded: nn.Module) -> None:
    renewable(sharded)
    shards = ReplicatedShards([sharded], Barriers)
    sharded(torch.ones(1, 2))  # without a backward pass
    shards.reset()
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    shards.check(0, 1)
    shards.renew()
    sharded(torch.ones(1, 2)).sum().backward()
    weight: Any = sharded.get_parameter("weight")
    assert weight.grad.full_tensor().tolist() == [[1, 1], [1, 1]]


def test_groups_are_made_by_one_function() -> None:
    calls = inspect.getsource(distributed_c10d).count(f"{MAKE_GROUP}(")
    assert calls == 1 + inspect.getsource(distributed_c10d.init_process_group).count(f"{MAKE_GROUP}(") + 1


@pytest.mark.parametrize(("file", "function"), WAITS, ids=str)
def test_torch_has_the_function_that_stacks_show(file: str, function: str) -> None:
    assert function in (Path(torch.__file__).parents[1] / file).read_text(encoding="utf-8")


def test_the_backward_pass_without_checks_is_torchs() -> None:
    first, second = (torch.arange(3.0, requires_grad=True) for _ in range(2))
    first.square().sum().backward()
    backward((second.square().sum(),), (torch.ones(()),))
    assert first.grad is not None
    assert second.grad is not None
    assert torch.equal(first.grad, second.grad)


def test_wrappers_have_the_child() -> None:
    linear = nn.Linear(1, 1)
    wrapped: tuple[Any, ...] = (torch.compile(linear, backend="eager"), checkpoint_wrapper(linear))
    assert tuple(next(name for name, _ in one.named_children()) for one in wrapped) == WRAPPED_MODULES


def test_state_dicts_have_the_key() -> None:
    class Extra(nn.Module):
        def get_extra_state(self) -> int:
            return 1

    assert list(Extra().state_dict()) == [EXTRA_STATE]


class Stream(IterableDataset[int]):
    """Three samples."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_a_loader_remembers_its_iteration() -> None:
    assert ITERATOR in own_names(DataLoader)


def test_a_loaders_iteration_knows_whether_its_stream_has_ended() -> None:
    batches: Any = iter(DataLoader(Stream(), batch_size=2))
    assert not getattr(batches, FETCHER).ended
    next(batches), next(batches)
    assert getattr(batches, FETCHER).ended


def test_the_first_batches_of_a_pass_with_workers_are_seen_and_torchs_own_function_gives_the_others() -> None:
    name, method = WORKER_PASS
    seen: list[list[int]] = []

    def noted(batch: Any) -> bool:
        seen.append(batch.tolist())
        return len(seen) == 2

    kind, begun = early.first_batches(dataloader, lambda loader: noted if loader.num_workers else None)
    assert kind.__name__ == name
    loader = DataLoader(Stream(), batch_size=2, num_workers=1)
    batches: Any = iter(loader)
    begun(batches, loader)
    assert method in vars(batches)
    assert [one.tolist() for one in batches] == [[0, 1], [2]] == seen
    assert method not in vars(batches)
    others: Any = iter(loader)
    begun(others, DataLoader(Stream()))
    assert method not in vars(others)


def test_torchs_library_reads_the_log_level() -> None:
    library = Path(torch.__file__).with_name("lib") / "libc10.so"
    assert not library.exists() or LOG_LEVEL.encode() in library.read_bytes()


def test_process_groups_are_set_by_one_function() -> None:
    assert list(inspect.signature(getattr(distributed_c10d, SET_GROUP)).parameters) == ["pg"]


def test_stores_are_created_by_one_function() -> None:
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    found = getattr(rendezvous, CREATE_STORE)
    assert list(inspect.signature(found).parameters)[:5] == ["hostname", "port", "rank", "world_size", "timeout"]
    calls = inspect.getsource(rendezvous).count(f"= {CREATE_STORE}(\n")
    assert calls == 2, "env:// and tcp://"


def test_the_default_group_has_a_store() -> None:
    assert list(inspect.signature(getattr(distributed_c10d, DEFAULT_STORE)).parameters) == []
    assert early.default_store(distributed_c10d) is None, "without a group"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        early.default_store(distributed_c10d).set("key", "value")
        assert early.default_store(distributed_c10d).get("key") == b"value"
    finally:
        dist.destroy_process_group()


def test_exchanges_are_all_that_torchs_functions_begin() -> None:
    source = inspect.getsource(distributed_c10d)
    data = r"\b(?:group|pg)\.(\w*(?:reduce|gather|scatter|all_?to_?all|broadcast|send|recv|barrier)\w*)\("
    begun = set(re.findall(data, source)) - {"monitored_barrier"}
    assert {"allreduce", "barrier", "send"} < begun <= set(early.EXCHANGES)


def test_a_group_that_is_written_in_python_keeps_its_methods() -> None:
    script = """
import torch
import torch.distributed as dist
from kittrain.torch_private.early import around_exchanges
begun = []
around_exchanges(dist.distributed_c10d, lambda *seen: begun.append(seen) or True)
class Own(dist.ProcessGroup):
    def allreduce(self, tensors, options=None):
        return "own"
group = Own(0, 1)
assert group.allreduce([torch.ones(1)]) == "own"
try:
    group.broadcast([torch.ones(2)], dist.BroadcastOptions())
except RuntimeError as error:  # it has no backend: C++ has not called itself for ever
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_exchanges_are_told_until_they_are_known_well_enough() -> None:
    seen: list[tuple[int, int]] = []

    def begun(*facts: int) -> bool:
        seen.append((facts[0], facts[1]))
        return len(seen) < 2

    group: Any = dist.ProcessGroup
    before = {name: vars(group).get(name) for name in early.EXCHANGES}
    early.around_exchanges(distributed_c10d, begun)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(3))
        other = group.broadcast = lambda *_: None
        dist.barrier()
        dist.all_reduce(torch.ones(3))
        assert seen == [(1, 12), (1, 0)]
        assert group.broadcast is other, "another library's"
    finally:
        dist.destroy_process_group()
        group.broadcast = before["broadcast"]
    assert {name: vars(group).get(name) for name in early.EXCHANGES} == before


def test_collectives_are_counted_in_all_groups() -> None:
    assert early.collectives_begun(None) == early.collectives_begun(distributed_c10d) == 0
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        counts = [early.collectives_begun(distributed_c10d)]
        groups: tuple[Any, ...] = (None, dist.new_group([0]))
        for group in groups:
            dist.all_reduce(torch.ones(1), group=group)
            counts.append(early.collectives_begun(distributed_c10d))
        assert counts[0] < counts[1] < counts[2]
    finally:
        dist.destroy_process_group()


def test_torch_copies_many_tensors_in_one_call() -> None:
    assert hasattr(torch, COPY_ALL)
    sources = [torch.rand(2, 3).t(), torch.tensor(4), torch.rand(0)]
    targets = [torch.empty_like(one) for one in sources]
    copy_all(targets, sources)
    assert all(torch.equal(one, other) for one, other in zip(targets, sources, strict=True))
    copy_all([], [])
