"""Saves a model's weights under each wrapping, and loads each of these files under each wrapping."""

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.nn.parallel import DataParallel, DistributedDataParallel

WRAPPINGS: dict[str, Callable[[nn.Module], Any]] = {
    "plain": lambda model: model,
    "DataParallel": DataParallel,
    "DDP": DistributedDataParallel,
    "FSDP2": fully_shard,
}
WHOLE = StateDictOptions(full_state_dict=True)  # not a shard of it


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


def saved(wrapping: str, file: Path) -> Path:
    """As tutorials save: with ``module.`` in the names if the model is wrapped; for FSDP2 with torch's function."""
    model = WRAPPINGS[wrapping](network(seed=1))
    state = get_model_state_dict(model, options=WHOLE) if wrapping == "FSDP2" else model.state_dict()
    if dist.get_rank() == 0:
        torch.save(state, file)
    dist.barrier()
    return file


def plain(file: Path) -> dict[str, Any]:
    """The weights by plain names."""
    state: dict[str, Any] = torch.load(file, weights_only=True)
    consume_prefix_in_state_dict_if_present(state, "module.")
    return state


def loaded_before(wrapping: str, file: Path) -> nn.Module:
    """Loaded into the plain model, which is wrapped then: for any wrapping."""
    model = network(seed=2)
    model.load_state_dict(plain(file))
    wrapped: nn.Module = WRAPPINGS[wrapping](model)
    return wrapped


def loaded_after(wrapping: str, file: Path) -> nn.Module:
    """Loaded into the wrapped model: for any wrapping but DataParallel."""
    model: nn.Module = WRAPPINGS[wrapping](network(seed=2))
    set_model_state_dict(model, plain(file), options=WHOLE)
    return model


def is_equal(model: nn.Module, expected: dict[str, torch.Tensor]) -> bool:
    found = get_model_state_dict(model, options=WHOLE)
    return all(torch.equal(torch.as_tensor(one), expected[name.removeprefix("module.")]) for name, one in found.items())


def main() -> None:
    dist.init_process_group("gloo")
    rank, folder, expected = dist.get_rank(), Path(sys.argv[1]), network(seed=1).state_dict()
    files = {one: saved(one, folder / f"{one}.pt") for one in WRAPPINGS}
    for one, other in product(WRAPPINGS, WRAPPINGS):
        ways = [loaded_before] if other == "DataParallel" else [loaded_before, loaded_after]
        for load in ways:
            equal = is_equal(load(other, files[one]), expected)
            print(f"rank {rank}: {one} to {other}, {load.__name__}: {equal}", flush=True)

    # Mistake: a sharded model is saved by one rank, which has only its own shard.
    sharded = network(seed=1)
    fully_shard(sharded)
    if rank == 0:
        torch.save(list(sharded.parameters()), folder / "shard.pt")
        parameters = torch.load(folder / "shard.pt", weights_only=False)
        held = sum(one.to_local().numel() for one in parameters)
        print(f"the file has {held} of {sum(one.numel() for one in parameters)} numbers")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
