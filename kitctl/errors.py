"""Every error that kitctl raises on purpose, and the exit code it ends with.

    KitError                     1   unexpected, but explained
    ├── UsageError               2   what was asked for cannot be: names the field and the fix
    │   ├── SpecError            2   one or more fields of a job are wrong
    │   ├── ConflictError        2   something of that name is there already, or is in the wrong state
    │   └── UnsupportedError     2   a real wish that this target or version cannot grant
    ├── TargetError              1   the place that runs jobs did not do what it was asked
    │   ├── Forbidden            1   this user may not do that there
    │   └── Unavailable          1   it does not answer now; it may soon
    ├── JobFailed              100   the job ended as failed
    ├── NotFinished            101   the job has not ended yet
    ├── NotFound               102   no such job, node or rank
    ├── JobCancelled           103   somebody cancelled the job
    └── WaitTimeout            124   the time given with --timeout is over

One place turns them into exit codes: ``kitctl.__main__``. A cause is always chained (``raise ... from``).
"""

from __future__ import annotations

from typing import ClassVar


class KitError(Exception):
    """An error with a sentence for a person: what is wrong, and (``fix``) what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class UsageError(KitError):
    """What was asked for cannot be."""

    exit_code = 2


class Problem(str):
    """One line about one field: ``nodes: 0 is not a size; fix: give at least 1``."""

    __slots__ = ()

    @classmethod
    def of(cls, field: str, what: str, fix: str) -> Problem:
        """Word a problem the way all of them are worded."""
        return cls(f"{field}: {what}; fix: {fix}")


class SpecError(UsageError):
    """One or more fields of a job are wrong; all of them are told at once."""

    def __init__(self, problems: list[Problem], *, source: str = "") -> None:
        self.problems = problems
        self.source = source
        where = f" in {source}" if source else ""
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"the job cannot be run as it is written{where}:\n{lines}")


class ConflictError(UsageError):
    """Something of that name is there already, or is in a state that does not allow this."""


class UnsupportedError(UsageError):
    """A real wish that this target or this version cannot grant."""


class TargetError(KitError):
    """The place that runs jobs (a cluster, this machine) did not do what it was asked."""


class Forbidden(TargetError):
    """This user may not do that there."""


class Unavailable(TargetError):
    """The place that runs jobs does not answer now; asked again after ``wait_seconds`` or more, it may."""

    def __init__(self, message: str, *, fix: str = "", wait_seconds: float = 0.0) -> None:
        super().__init__(message, fix=fix)
        self.wait_seconds = wait_seconds


class JobFailed(KitError):
    """The job ended as failed."""

    exit_code = 100


class NotFinished(KitError):
    """The job has not ended yet."""

    exit_code = 101


class NotFound(KitError):
    """No such job, node or rank."""

    exit_code = 102


class JobCancelled(KitError):
    """Somebody cancelled the job."""

    exit_code = 103


class WaitTimeout(KitError):
    """The time given with ``--timeout`` is over; the job goes on."""

    exit_code = 124
