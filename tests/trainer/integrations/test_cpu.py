"""Accelerate is told of CPUs only where there is nothing else, and nobody has said otherwise."""

from __future__ import annotations

import pytest
import torch

from kittrain.integrations.cpu import VARIABLES, tell_accelerate


def test_what_the_user_says_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    environ = {"ACCELERATE_USE_CPU": "false"}
    tell_accelerate(environ)
    assert environ == {**VARIABLES, "ACCELERATE_USE_CPU": "false"}


def test_an_accelerator_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    environ: dict[str, str] = {}
    tell_accelerate(environ)
    assert not environ
