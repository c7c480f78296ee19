"""Changes to the machine outside this checkout, such as Debian packages: announced first, and made only if allowed.

``KIT_NO_SYSTEM=1`` declines all of them. A user at a terminal is asked; elsewhere, as in CI, an announcement is enough.
Standard library only: `make setup` uses this before anything is installed.
"""

from __future__ import annotations

import os
import sys
from typing import Final

VARIABLE: Final = "KIT_NO_SYSTEM"


def declined() -> bool:
    """Whether the environment declines all changes."""
    return os.environ.get(VARIABLE, "") not in {"", "0"}


def allowed(*changes: str) -> bool:
    """Announce changes, each as a phrase such as "install the Debian package jq"; return whether to make them."""
    if not changes:
        return True
    what = "; ".join(changes)
    if declined():
        print(f"{VARIABLE} is set: will not {what}", flush=True)
        return False
    print(f"about to change this machine: {what} ({VARIABLE}=1 declines)", flush=True)
    return not _interactive() or _confirmed()


def _interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")


def _confirmed() -> bool:
    try:
        answer = input("continue? [Y/n] ")
    except EOFError:
        return False
    return answer.strip().lower() in {"", "y", "yes"}
