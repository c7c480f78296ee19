"""The version: kept in ``trainer/kitjob/__init__.py``, and written to every file that repeats it.

    python -m tools.set_version 0.2.0            write it everywhere, and generate docs and goldens again
    python -m tools.set_version --check [0.2.0]  fail where a file states another one
    python -m tools.set_version --show           print it

Standard library only, since the release workflow checks the tag before it installs anything.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FORM: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
SOURCE: Final = "trainer/kitjob/__init__.py"
_VERSION: Final = r"(?P<version>[^\s\"]+)"
CHARTS: Final = ("charts/training-job/Chart.yaml", "charts/platform/Chart.yaml")
# File -> the lines that state the version.
WRITTEN: Final = {
    SOURCE: rf'^__version__ = "{_VERSION}"$',
    **dict.fromkeys(CHARTS, rf"^appVersion: {_VERSION}(?= |$)"),
    "charts/platform/values.yaml": rf"^image: kitctl/trainer:{_VERSION}$",
}
CHART_VERSION: Final = rf"^version: {_VERSION}(?= |$)"  # in CHARTS: a semantic version, which Helm insists on
GENERATORS: Final = (
    (sys.executable, "-m", "tools.gen_docs"),
    (sys.executable, "-m", "pytest", "-q", "tests/kitctl", "-m", "not slow", "--update-goldens"),
)


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments ask for; the exit code is 1 if files disagree."""
    match arguments:
        case ["--show"]:
            print(current())
        case ["--check", *expected] if len(expected) <= 1:
            wrong = list(mismatches("".join(expected)))
            print("\n".join(wrong) or f"every file states {current()}")
            return int(bool(wrong))
        case [version] if FORM.fullmatch(version):
            write(version)
            return max(subprocess.run(command, check=False, cwd=ROOT).returncode for command in GENERATORS)
        case _:
            sys.exit(__doc__)
    return 0


def current(root: Path = ROOT) -> str:
    """The version in ``kitctl/__init__.py``."""
    return _stated(root, SOURCE, WRITTEN[SOURCE])[0]


def mismatches(expected: str = "", root: Path = ROOT) -> Iterator[str]:
    """A sentence for each file that states another version than ``expected``, by default kitctl's, or none."""
    expected = expected or current(root)
    for name, pattern in WRITTEN.items():
        found = set(_stated(root, name, pattern))
        if found != {expected}:
            yield f"{name}: {', '.join(sorted(found)) or 'no version'}, expected {expected}"
    for name in CHARTS:
        if (found := set(_stated(root, name, CHART_VERSION))) != {semantic(expected)}:
            yield f"{name}: chart {', '.join(sorted(found)) or 'without version'}, expected {semantic(expected)}"


def write(version: str, root: Path = ROOT) -> None:
    """Write the version to the files that are not generated."""
    for name, pattern in WRITTEN.items():
        _write_lines(root / name, pattern, version)
    for name in CHARTS:
        _write_lines(root / name, CHART_VERSION, semantic(version))


def semantic(version: str) -> str:
    """A version of Python's form in that of semver.org: 0.2.0rc1 is 0.2.0-rc.1."""
    return re.sub(r"(?<=\d)(a|b|rc)(\d+)$", r"-\1.\2", version)


def _write_lines(path: Path, pattern: str, version: str) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(pattern, lambda found: _replaced(found, version), text, flags=re.MULTILINE), "utf-8")


def _stated(root: Path, name: str, pattern: str) -> list[str]:
    text = (root / name).read_text(encoding="utf-8")
    return [found["version"] for found in re.finditer(pattern, text, re.MULTILINE)]


def _replaced(found: re.Match[str], version: str) -> str:
    start, end = (position - found.start() for position in found.span("version"))
    return found[0][:start] + version + found[0][end:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
