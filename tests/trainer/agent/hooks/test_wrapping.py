"""Functions that stand in for a library's."""

from __future__ import annotations

import inspect
import traceback
import warnings
from types import FrameType
from typing import Any

import pytest

from kittrain.agent.hooks import wrapping
from kittrain.agent.hooks.wrapping import in_place_of


def deprecated(fails: bool = False) -> int:  # noqa: FBT001,FBT002  as libraries have it
    """Of a library."""
    warnings.warn("another one is better", FutureWarning, stacklevel=2)
    if fails:
        raise ValueError("of the library")
    return 3


@in_place_of(deprecated)
def hooked(*args: Any, **kwargs: Any) -> int:
    """A hook."""
    return deprecated(*args, **kwargs)


def line() -> int:
    """Of the caller."""
    frame = inspect.currentframe()
    assert isinstance(frame, FrameType)
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_warning_is_of_the_line_that_calls_the_library() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        here = line() + 1
        assert hooked() == 3
    assert [(one.filename, one.lineno) for one in told] == [(__file__, here)]


@pytest.mark.filterwarnings("ignore:another")
def test_it_looks_like_the_librarys_and_an_error_shows_both() -> None:
    assert (hooked.__name__, hooked.__doc__) == ("deprecated", "Of a library.")
    assert str(inspect.signature(hooked)) == "(fails: 'bool' = False) -> 'int'"
    with pytest.raises(ValueError, match="of the library") as caught:
        hooked(fails=True)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == ["hooked", "deprecated"]
    hook = traceback.extract_tb(caught.value.__traceback__)[-2]
    assert hook.filename == f"{__file__}{wrapping.SKIPPED}"
