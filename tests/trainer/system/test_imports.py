"""Imports without the garbage collector."""

from __future__ import annotations

import gc

import pytest

from kittrain.system.imports import without_gc


@pytest.fixture(autouse=True)
def collecting():
    assert gc.isenabled()
    yield
    gc.enable()


def fail() -> None:
    with without_gc():
        assert not gc.isenabled()
        raise ImportError


def test_the_collector_is_disabled_and_enabled_again() -> None:
    with pytest.raises(ImportError):
        fail()
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    with without_gc():
        pass
    assert not gc.isenabled()
