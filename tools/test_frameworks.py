"""``make test-frameworks``: tests of ``kittrain.integrations`` with the real frameworks, in their own environment.

    python -m tools.test_frameworks [PYTEST ARGUMENTS]

The environment, ``.cache/frameworks``, sees the packages of ``.venv``, so that torch is not installed twice.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".cache" / "frameworks"
INTERPRETER: Final = FOLDER / "bin" / "python"
READY: Final = FOLDER / "ready"  # the packages that were installed
PACKAGES: Final = (
    *("transformers[torch]>=4.57", "datasets>=4.0", "accelerate>=1.10", "lightning>=2.5", "jax[cpu]>=0.6"),
    *("wandb>=0.21", "mlflow>=3.0", "tensorboard>=2.19"),
)
PYTEST: Final = (sys.executable, "-m", "pytest", "-rs", "-m", "frameworks", "tests/frameworks")


def main(arguments: Sequence[str]) -> int:
    """Make the environment if need be, and run the tests; returns pytest's exit code."""
    make()
    return subprocess.run([*PYTEST, *arguments], check=False, cwd=ROOT).returncode


def make() -> None:
    """Make the environment, or bring it up to date."""
    wanted = "\n".join(PACKAGES)
    if READY.exists() and READY.read_text(encoding="utf-8") == wanted:
        return
    print(f"making {FOLDER.relative_to(ROOT)}: {', '.join(PACKAGES)}", flush=True)
    venv.create(FOLDER, with_pip=True)
    seen = [ROOT, ROOT / "trainer", sysconfig.get_path("purelib")]
    (own,) = FOLDER.glob("lib/python3*/site-packages")
    (own / "_kit.pth").write_text("".join(f"{path}\n" for path in seen), encoding="utf-8")
    subprocess.run([INTERPRETER, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    READY.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
