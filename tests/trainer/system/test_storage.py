"""Retries on a file system that fails: some attempts, one log line, then an error."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kittrain.system.storage import DELAYS, StorageUnavailableError, retry_io
from tests.trainer.storage import short_retries


@pytest.fixture(autouse=True)
def _short_delays() -> Iterator[None]:
    with short_retries():
        yield


def failing(errors: list[OSError]) -> Callable[[], str]:
    left = iter(errors)

    def act() -> str:
        if error := next(left, None):
            raise error
        return "read"

    return act


def test_a_recovered_file_system_is_used() -> None:
    logged: list[str] = []
    errors = [OSError(errno.EIO, "Input/output error"), PermissionError(errno.EACCES, "Permission denied", "/else")]
    assert retry_io(failing(errors), Path("/there"), logged.append) == "read"
    assert logged == ["[Errno 5] Input/output error: '/there'; retrying for 0 s"]


def test_a_lasting_failure_names_error_path_and_attempts() -> None:
    logged: list[str] = []
    with pytest.raises(StorageUnavailableError, match=r"^\[Errno 5\] I/O: '/there'; tried 6 times in 0 s$"):
        retry_io(failing([OSError(errno.EIO, "I/O")] * 7), Path("/there"), logged.append)
    assert len(logged) == 1


def test_any_other_error_is_raised_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        retry_io(lambda: 1 / 0, Path("/there"), pytest.fail)


def test_retries_end_well_before_a_collective_times_out() -> None:
    assert 30 <= sum(DELAYS) <= 120
