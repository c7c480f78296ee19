"""The process of one command: ``kitctl``, and ``python -m kitctl``."""

from __future__ import annotations

import atexit
import gc
import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    # Imports leave no garbage, and a process that ends need not look for any: a sixth of a short command's time.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    from kitctl.cli.main import main as run  # noqa: PLC0415 - once the collector is set

    return run()


if __name__ == "__main__":
    sys.exit(main())
