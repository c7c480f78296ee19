"""``make test-versions``: the trainer's tests with other versions of Python and torch than ``.venv`` has.

    python -m tools.test_versions [PYTHON:TORCH...]     for example 3.11:2.6.0 3.13:newest

Each pair gets its own environment under ``.cache/versions``, made by uv, which also downloads a Python that is
missing. Torch takes gigabytes for each pair, from TORCH_INDEX_URL if that is set. Prints a Markdown table of what
passed, what failed, and what could not be installed and why; the logs are next to the environments.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools import setup

FOLDER: Final = Path(".cache/versions")
NEWEST: Final = "newest"
# The oldest supported torch, the image's, and the newest; and each Python with the newest torch.
DEFAULT: Final = ("3.11:2.6.0", "3.11:2.9.1", "3.11:newest", "3.12:newest", "3.13:newest", "3.14:newest")
TEST_PACKAGES: Final = frozenset({"hypothesis", "libfaketime", "pytest", "pytest-timeout", "pytest-xdist"})
PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE")
FAST: Final = ("tests/trainer", "-m", "not slow and not long", "-n", os.environ.get("WORKERS", "auto"))
END_TO_END: Final = (
    "tests/trainer/agent/test_forkserver.py",
    "tests/trainer/agent/test_agent.py",
    "tests/trainer/agent/processes/test_worker.py",
    "tests/trainer/test_sharded_survivors.py::test_a_rank_is_killed_and_the_others_live_on",
    "-m",
    "slow",
)


class Pair(NamedTuple):
    """A version of Python, such as 3.11, and one of torch, such as 2.6.0, or ``newest``."""

    python: str
    torch: str

    @property
    def folder(self) -> Path:
        """Its environment."""
        return FOLDER / f"python{self.python}-torch{self.torch}"

    @property
    def interpreter(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"


class Row(NamedTuple):
    """A line of the table."""

    python: str
    torch: str
    outcome: str
    note: str


class Unavailable(Exception):
    """A pair cannot be installed here; the message has the reason."""


def main(arguments: Sequence[str]) -> int:
    """Run the tests with each pair; the exit code is 1 if a test failed."""
    rows = []
    for pair in map(parse, arguments or DEFAULT):
        print(f"== Python {pair.python}, torch {pair.torch}", flush=True)
        rows.append(check(pair))
        print(f"{rows[-1].outcome}: {rows[-1].note}", flush=True)
    print("\n".join(["", *table(rows)]))
    return int(any(row.outcome == "failed" for row in rows))


def parse(argument: str) -> Pair:
    """A pair from ``PYTHON:TORCH``."""
    found = re.fullmatch(rf"(3\.\d+):(\d+\.\d+\.\d+|{NEWEST})", argument)
    if not found:
        sys.exit(__doc__)
    return Pair(*found.groups())


def check(pair: Pair) -> Row:
    """Make the pair's environment and run the tests in it."""
    log = Path(f"{pair.folder}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    try:
        install(pair, log)
    except Unavailable as error:
        return Row(pair.python, pair.torch, "not available", str(error))
    python, torch = _output(pair, "import platform, torch; print(platform.python_version(), torch.__version__)").split()
    began = time.monotonic()
    codes = [_run(log, pair.interpreter, *PYTEST, *tests) for tests in (FAST, END_TO_END)]
    note = f"{'; '.join(summaries(log.read_text(encoding='utf-8')))} ({time.monotonic() - began:.0f} s)"
    return Row(python, torch, "failed" if any(codes) else "passed", note)


def install(pair: Pair, log: Path) -> None:
    """Make the pair's environment, or bring it up to date.

    Raises:
        Unavailable: there is no such Python, or no torch for it.
    """
    if not pair.interpreter.exists() and _uv(log, "venv", "--python", pair.python, pair.folder):
        raise Unavailable(f"no Python {pair.python}: {_last_error(log)}")
    index = os.environ.get("TORCH_INDEX_URL")
    source = ("--extra-index-url", index, "--index-strategy", "unsafe-best-match") if index else ()
    pin = "torch" if pair.torch == NEWEST else f"torch=={pair.torch}"
    packages = ("-e", ".[trainer]", pin, "pip", *test_requirements())  # uv's environments have no pip of their own
    if _uv(log, "pip", "install", "--compile-bytecode", "--python", pair.interpreter, *source, *packages):
        raise Unavailable(_last_error(log))


def test_requirements() -> Iterator[str]:
    """What the trainer's tests need besides the trainer, as ``pyproject.toml`` has it."""
    groups = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    for requirement in groups["dev"]:
        if re.split(r"[<>=;\s]", requirement)[0] in TEST_PACKAGES:
            yield requirement


def summaries(log: str) -> Iterator[str]:
    """The last lines of pytest's runs, without their times."""
    for found in re.finditer(r"^(?:=+ )?((?:\d+ \w+(?:, )?)+) in [\d.]+s", log, re.MULTILINE):
        yield found[1]


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as Markdown."""
    cells = [Row("Python", "torch", "Outcome", "Tests: fast; end to end"), Row(*["---"] * 4), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]


def _uv(log: Path, *arguments: str | Path) -> int:
    return _run(log, setup.PYTHON, "-m", "uv", *arguments)


def _run(log: Path, *command: str | Path) -> int:
    with log.open("a", encoding="utf-8") as out:
        done = subprocess.run(command, check=False, env=setup.ENVIRON, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    return done.returncode


def _output(pair: Pair, code: str) -> str:
    return subprocess.run([pair.interpreter, "-c", code], check=True, capture_output=True, text=True).stdout


def _last_error(log: Path) -> str:
    """The reason in uv's output, in one line and without its drawings."""
    words = log.read_text(encoding="utf-8").partition("error:")[2] or log.read_text(encoding="utf-8")
    return " ".join(re.sub(r"[^\x20-\x7e]", " ", words).split())[:300]


if __name__ == "__main__":
    setup.use_pips_index()
    sys.exit(main(sys.argv[1:]))
