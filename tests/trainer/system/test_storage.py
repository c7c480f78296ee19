"""What a file system that does not answer costs: some tries, one line, and no more."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kittrain.system.storage import DELAYS, StorageUnavailableError, patiently
from tests.trainer.storage import impatient


@pytest.fixture(autouse=True)
def _impatient() -> Iterator[None]:
    with impatient():
        yield


def refusing(errors: list[OSError]) -> Callable[[], str]:
    left = iter(errors)

    def act() -> str:
        if error := next(left, None):
            raise error
        return "read"

    return act


def test_what_answers_again_was_worth_waiting_for() -> None:
    said: list[str] = []
    errors = [OSError(errno.EIO, "Input/output error"), PermissionError(errno.EACCES, "Permission denied", "/else")]
    assert patiently(refusing(errors), Path("/there"), said.append) == "read"
    assert said == ["[Errno 5] Input/output error: '/there'; trying again for 0 s"]


def test_what_never_answers_is_told_with_error_path_and_tries() -> None:
    said: list[str] = []
    with pytest.raises(StorageUnavailableError, match=r"^\[Errno 5\] I/O: '/there'; tried 6 times in 0 s$"):
        patiently(refusing([OSError(errno.EIO, "I/O")] * 7), Path("/there"), said.append)
    assert len(said) == 1


def test_any_other_error_is_raised_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        patiently(lambda: 1 / 0, Path("/there"), pytest.fail)


def test_a_minute_is_waited_well_within_a_collective_s_time_out() -> None:
    assert 30 <= sum(DELAYS) <= 120
