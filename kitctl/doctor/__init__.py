"""What is looked at before a job runs, and while it does: checks, each with what was found and its fix.

What lives here: how a check is made and told (``look``), and the checks of a running job (``job``). What never does:
asking a cluster or this machine; their checks are the targets' (``targets/cluster/checks``, ``targets/local/checks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from kitctl.errors import Forbidden, KitError

Verdict: TypeAlias = Literal["ok", "warning", "problem", "unknown"]
Check: TypeAlias = Callable[[], str]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found, in a sentence, and (``fix``) what to do about it."""

    check: str
    verdict: Verdict
    what: str
    fix: str = ""


class Doubt(KitError):
    """It may work; what to look out for. Raised by a check, where a problem is any other error."""


def look(checks: Iterable[tuple[str, Check]], *, first: str = "") -> Iterator[Finding]:
    """Make checks, one after the other: each says what it found, or raises what is wrong.

    Args:
        checks: by name.
        first: the one without which no other can be made.
    """
    for name, check in checks:
        finding = _made(name, check)
        yield finding
        if name == first and finding.verdict == "problem":
            return


def _made(name: str, check: Check) -> Finding:
    try:
        return Finding(check=name, verdict="ok", what=check())
    except Doubt as doubt:
        return Finding(check=name, verdict="warning", what=doubt.message, fix=doubt.fix)
    except Forbidden as error:
        return Finding(check=name, verdict="unknown", what=f"you may not look: {error.message}", fix=error.fix)
    except KitError as error:
        return Finding(check=name, verdict="problem", what=error.message, fix=error.fix)
    except Exception as error:  # noqa: BLE001 - the others have something to say, too
        what = f"this check itself has failed: {type(error).__name__}: {error}"
        return Finding(
            check=name, verdict="unknown", what=what, fix="report it as a bug of kitctl; the other checks count"
        )
