"""Check the CI workflows with actionlint, which is built from its Go module at a pinned version the first time."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.cluster.kind import host, programs
from tests.cluster.kind.settings import BIN
from tests.cluster.kind.steps import step


def main() -> int:
    """Run actionlint; the exit code is 1 if it finds anything, or if CI cannot have it."""
    if not host.has_go():
        print("SKIPPED: no Go toolchain to build actionlint with")
        return int("CI" in os.environ)
    if not programs.is_built("actionlint"):
        step("build actionlint", lambda: programs.build("actionlint"))
    # Its helpers for shell and Python would make the result depend on what else is installed.
    return subprocess.run([BIN / "actionlint", "-shellcheck=", "-pyflakes="], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
