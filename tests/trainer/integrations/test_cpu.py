"""Accelerate is configured for CPUs only without an accelerator and without settings of the user's."""

from __future__ import annotations

import pytest
import torch

from kittrain.integrations.cpu import VARIABLES, configure_accelerate


def test_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    environ = {"ACCELERATE_USE_CPU": "false"}
    configure_accelerate(environ)
    assert environ == {**VARIABLES, "ACCELERATE_USE_CPU": "false"}


def test_an_accelerator_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    environ: dict[str, str] = {}
    configure_accelerate(environ)
    assert not environ
