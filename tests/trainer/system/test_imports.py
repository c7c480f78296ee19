"""Importing large packages."""

from __future__ import annotations

import gc

import pytest

from kittrain.system.imports import uncollected


@pytest.fixture(autouse=True)
def collecting():
    assert gc.isenabled()
    yield
    gc.enable()


def fail() -> None:
    with uncollected():
        assert not gc.isenabled()
        raise ImportError


def test_the_collector_rests_and_comes_back() -> None:
    with pytest.raises(ImportError):
        fail()
    assert gc.isenabled()


def test_whoever_does_without_it_goes_on_without_it() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()
