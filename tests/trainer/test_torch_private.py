"""The names of torch that it does not document and kittrain uses, each with its reason. A new torch may lack them."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

KITTRAIN: Final = Path(__file__).parents[2] / "trainer" / "kittrain"
# Imported names -> why kittrain needs them.
IMPORTED: Final = {
    "torch._subclasses.fake_tensor.FakeTensorMode": "a model file is written without its tensors in memory",
    "torch.distributed.elastic.rendezvous.dynamic_rendezvous._Action": "c10d: a node that ends leaves the rendezvous",
    "torch.distributed.elastic.rendezvous.dynamic_rendezvous._RendezvousContext": "as _Action",
    "torch.nn.modules.batchnorm._BatchNorm": "the base class of all batch normalizations",
}
# Methods of torchelastic's agent that kittrain overrides or calls -> the parameters that it relies on.
AGENT: Final = {
    "_rendezvous": ["self", "worker_group"],
    "_start_workers": ["self", "worker_group"],
    "_monitor_workers": ["self", "worker_group"],
    "_stop_workers": ["self", "worker_group"],
    "_shutdown": ["self", "death_sig"],
    "_exit_barrier": ["self"],
}


def private_imports() -> Iterator[str]:
    """The names with a leading underscore that kittrain imports from torch."""
    for path in KITTRAIN.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.startswith("torch.")]
            else:
                continue
            yield from (name for name in names if any(part.startswith("_") for part in name.split(".")))


def test_every_private_import_is_listed_with_its_reason() -> None:
    assert set(private_imports()) == IMPORTED.keys()


@pytest.mark.parametrize("name", IMPORTED)
def test_torch_has_the_name(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("method", AGENT)
def test_torchelastics_agent_has_the_method(method: str) -> None:
    parameters = list(inspect.signature(getattr(SimpleElasticAgent, method)).parameters)
    assert parameters[: len(AGENT[method])] == AGENT[method]


def test_the_timeout_of_a_process_group_can_be_set() -> None:
    assert hasattr(dist, "set_timeout") or hasattr(distributed_c10d, "_set_pg_timeout")
