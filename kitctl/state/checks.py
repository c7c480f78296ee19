"""Runs the checks of ``kitctl doctor``, each with a finding and its fix: before a job runs, or while it does.

Defined here: ``run_checks`` for any checks. Those of a running job are in ``running_job``, those of a cluster and of
this machine in the targets (``targets/cluster/checks``, ``targets/local/local_checks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from kitctl.base.errors import Forbidden, KitError

Verdict: TypeAlias = Literal["ok", "warning", "problem", "unknown"]
Check: TypeAlias = Callable[[], str]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found, in a sentence, (``fix``) what to do about it, and (``then``) how to continue."""

    check: str
    verdict: Verdict
    what: str
    fix: str = ""
    then: str = ""


class CheckWarning(KitError):
    """A check's warning: the job may work all the same. Any other error that a check raises is a problem."""


def run_checks(checks: Iterable[tuple[str, Check]], *, first: str = "") -> Iterator[Finding]:
    """Run checks in order: each returns what it found, or raises an error.

    Args:
        checks: names and checks.
        first: name of the check that all others depend on.
    """
    for name, check in checks:
        finding = _run_check(name, check)
        yield finding
        if name == first and finding.verdict == "problem":
            return


def _run_check(name: str, check: Check) -> Finding:
    try:
        return Finding(check=name, verdict="ok", what=check())
    except CheckWarning as warning:
        return Finding(check=name, verdict="warning", what=warning.message, fix=warning.fix, then=warning.then)
    except Forbidden as error:
        return Finding(check=name, verdict="unknown", what=f"permission denied: {error.message}", fix=error.fix)
    except KitError as error:
        return Finding(check=name, verdict="problem", what=error.message, fix=error.fix, then=error.then)
    except Exception as error:  # noqa: BLE001 - the other checks still run
        what = f"the check itself failed: {type(error).__name__}: {error}"
        return Finding(
            check=name, verdict="unknown", what=what, fix="report it as a bug of kitctl; the other checks are valid"
        )
