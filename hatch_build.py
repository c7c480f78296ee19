"""Hatch's hook for every wheel, an editable one included: packs into the chart the trainer that travels with jobs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "kitctl/code/trainer_package.py"  # by its path: what kitctl needs is not installed yet


class TrainerHook(BuildHookInterface[Any]):
    """See the module."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's signature
        """Before the files are collected."""
        root = Path(self.root)
        spec = importlib.util.spec_from_file_location("trainer_package", root / MODULE)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(root / MODULE)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look it up
        spec.loader.exec_module(module)
        module.refresh(root)
