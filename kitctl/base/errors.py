"""The errors that kitctl raises, and the exit code of each.

    KitError                     1   any other error that is explained
    ├── UsageError               2   an invalid request: names the field and the fix
    │   ├── SpecError            2   one or more fields of a job are invalid
    │   ├── ConflictError        2   the name is taken, or the job is in the wrong state
    │   └── UnsupportedError     2   not supported by this target or version
    ├── TargetError              1   the cluster, or this machine, failed to do what was asked
    │   ├── Forbidden            1   permission denied
    │   └── Unavailable          1   no answer; a retry may succeed
    ├── JobFailed              100   the job failed
    ├── NotFinished            101   the job has not ended yet
    ├── NotFound               102   no such node, rank or object
    │   └── JobNotFound        102   no such job
    ├── JobCancelled           103   the job was cancelled
    └── WaitTimeout            124   --timeout is over

``kitctl.cli.main`` turns them into exit codes. A cause is always chained (``raise ... from``).
"""

from __future__ import annotations

from typing import ClassVar


class KitError(Exception):
    """An error with a message for the user: what is wrong, (``fix``) what to do about it, and ``then``."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, fix: str = "", then: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.then = then

    def __str__(self) -> str:
        """The message, and the fix and how to continue in lines of their own: what a traceback ends with."""
        named = (("fix", self.fix), ("then", self.then))
        return "\n".join((self.message, *(f"{name}: {text}" for name, text in named if text)))


class UsageError(KitError):
    """An invalid request."""

    exit_code = 2


class Problem(str):
    """One line about one field: ``nodes: 0 is not a valid node count; fix: use 1 or more``."""

    __slots__ = ()

    @classmethod
    def of(cls, field: str, what: str, fix: str) -> Problem:
        """Format a problem."""
        return cls(f"{field}: {what}; fix: {fix}")


class SpecError(UsageError):
    """One or more fields of a job are invalid; the message lists all of them."""

    def __init__(self, problems: list[Problem], *, source: str = "") -> None:
        self.problems = problems
        self.source = source
        where = f" in {source}" if source else ""
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"invalid job{where}:\n{lines}")


class ConflictError(UsageError):
    """The name is taken, or the job is in a state that does not allow this."""


class UnsupportedError(UsageError):
    """This target or this version does not support the request."""


class TargetError(KitError):
    """The target (a cluster, this machine) failed to do what was asked."""


class Forbidden(TargetError):
    """Permission denied."""


class Unavailable(TargetError):
    """The target does not answer; a retry after ``wait_seconds`` or more may succeed."""

    def __init__(self, message: str, *, fix: str = "", wait_seconds: float = 0.0) -> None:
        super().__init__(message, fix=fix)
        self.wait_seconds = wait_seconds


class JobFailed(KitError):
    """The job failed."""

    exit_code = 100


class NotFinished(KitError):
    """The job has not ended yet."""

    exit_code = 101


class NotFound(KitError):
    """No such job, node or rank."""

    exit_code = 102


class JobNotFound(NotFound):
    """No such job."""


class JobCancelled(KitError):
    """The job was cancelled."""

    exit_code = 103


class WaitTimeout(KitError):
    """``--timeout`` is over; the job continues."""

    exit_code = 124
