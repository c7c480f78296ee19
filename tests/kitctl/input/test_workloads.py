"""kitctl knows the workloads that the trainer has, by name."""

from __future__ import annotations

import importlib
import pkgutil

import kittrain.workloads
from kitctl.input.workloads import WORKLOADS


def test_kitctl_lists_each_module_that_is_a_workload() -> None:
    modules = (one.name for one in pkgutil.iter_modules(kittrain.workloads.__path__))
    runnable = {name for name in modules if hasattr(importlib.import_module(f"kittrain.workloads.{name}"), "main")}
    assert set(WORKLOADS) == runnable
