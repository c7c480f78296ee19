"""``make test-changed``: runs the tests that a change can break, nearest first, in about a minute.

    python -m tools.changed_tests [BASE]

Changed is what differs from where this branch left BASE, new files and the working tree included. Without a BASE it is
``origin/main``; if there is none, or nothing differs from it, the commit before this one.

A test can break by what it imports, directly or not: the imports of kitctl and kittrain are grimp's, which
import-linter uses, too; those of tests, tools and benchmarks are read from their source, with the modules and scripts
that they name in strings and start as processes. A file that is not Python breaks the tests that name it, and those
of its row in ``DATA``. Of all these, those run that are fewest imports away and fit in ``SECONDS``, by the durations
of earlier runs of ``make test``; the others are listed. Tests on the cluster and long ones are left to ``make test``.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import grimp

from tools.run_tests import FAST, LOGS, PYTEST, SLOW

SECONDS: Final = float(os.environ.get("SECONDS") or 60)
ROOT: Final = Path(__file__).parents[1]
# Where the files of each package are, and the tests that mirror them.
PACKAGES: Final = {"kitctl": "kitctl", "kitjob": "trainer/kitjob", "kittrain": "trainer/kittrain"}
MIRRORS: Final = {
    "tests/kitctl": "kitctl",
    "tests/kitjob": "trainer/kitjob",
    "tests/trainer": "trainer/kittrain",
    "tests/bench": "bench",
    "tests/repo": "tools",
}
READ: Final = ("tests", "tools", "bench")  # folders whose imports are read from the source
LEFT_OUT: Final = ("tests/cluster/*", "tests/gpu/*", "tests/frameworks/*")  # each has a target of its own

# What imports do not show: modules found by a computed name, and those of processes that tests start.
UNSEEN: Final = (
    ("kitctl/cli/__init__.py", "kitctl/cli/commands/*.py"),
    ("kitctl/__init__.py", "kitctl/api/client.py"),
    ("kitctl/targets/__init__.py", "kitctl/targets/*/__init__.py"),
    ("tests/local/conftest.py", "trainer/kittrain/agent/forkserver.py"),
    ("tests/tutorial/test_*.py", "trainer/kittrain/agent/forkserver.py"),
    ("tests/charts/helm.py", "kitctl/cli/commands/render.py"),
)
# Files that are no Python -> the tests that read them.
DATA: Final = (
    ("manifests/*", ("tests/kitctl/render/*", "tests/kitctl/kinds/*")),
    ("charts/*", ("tests/charts/*", "tests/kitctl/kinds/*", "tests/repo/test_release.py")),
    ("charts/training-job/files/*", ("tests/kitctl/code/test_bootstrap.py",)),
    ("charts/platform/files/*", ("tests/trainer/agent/metrics/test_monitoring.py",)),
    ("tests/cases/*", ("tests/kitctl/render/*", "tests/charts/*")),
    ("tests/golden/*", ("tests/kitctl/render/*",)),
    ("docs/*", ("tests/repo/*", "tests/bench/test_tables.py", "tests/kitctl/cli/test_json_output.py")),
    ("bench/results/*", ("tests/bench/*",)),
    ("*.md", ("tests/repo/*",)),
    (".github/*", ("tests/repo/*",)),
    (".ci/*", ("tests/repo/*",)),
    ("Makefile", ("tests/repo/*", "tests/bench/test_tables.py")),
    ("Dockerfile", ("tests/repo/*",)),
    ("pyproject.toml", ("tests/repo/*", "tests/kitctl/cli/*", "tests/trainer/agent/*")),
    ("tests/repo/*", ("tests/repo/*",)),
    ("trainer/*", ("tests/repo/test_packages.py",)),
    ("kitctl/*", ("tests/repo/test_packages.py",)),
)
WORKERS: Final = {"fast": FAST, "slow": SLOW}
MARKS: Final = {"fast": "not slow and not long", "slow": "slow and not long and not frameworks"}
NO_TESTS: Final = 5  # pytest's exit code
GUESS: Final = {"fast": 0.3, "slow": 10.0}  # seconds of a test that no earlier run measured

Graph = Mapping[str, set[str]]


class Candidate(NamedTuple):
    """The fast or the slow tests of a file, and how far they are from the change; those nearest and shortest first."""

    distance: int
    seconds: float
    part: str
    file: str


def main(arguments: Sequence[str]) -> int:
    """Choose and run; the exit code is that of pytest."""
    base, changed = changes(arguments[0] if arguments else "")
    print(f"{len(changed)} files differ from {base}")
    found = candidates(ROOT, distances(ROOT, changed), durations(ROOT / LOGS))
    chosen, left = choose(found, SECONDS)
    for one in chosen:
        print(f"  {one.distance} imports away: the {one.part} tests of {one.file}")
    if left:
        print(f"left to `make test`, besides the cluster's and the long tests: {len(left)} that may break, too")
        print("\n".join(f"  {one.distance} imports away: the {one.part} tests of {one.file}" for one in left))
    return max([_run(part, [one.file for one in chosen if one.part == part]) for part in GUESS], default=0)


def changes(base: str) -> tuple[str, list[str]]:
    """The base, and the files that differ from it: committed, in the working tree, and new ones."""
    new = _git("ls-files", "--others", "--exclude-standard", "-z").split("\0")
    for one in [base] if base else ["origin/main", "HEAD~1"]:
        if base or _git("rev-parse", "--verify", "--quiet", one, check=False):
            start = _git("merge-base", one, "HEAD").strip()
            names = {*_git("diff", "--name-only", "--no-renames", "-z", start).split("\0"), *new} - {""}
            if names or one == "HEAD~1":
                return one, sorted(names)
    return base, []


def distances(root: Path, changed: Iterable[str]) -> dict[str, int]:
    """How many imports lie between each file and the nearest changed one, for those that can be reached."""
    graph = imports(root)
    users: dict[str, set[str]] = defaultdict(set)
    for file, imported in graph.items():
        for other in imported:
            users[other].add(file)
    found: dict[str, int] = {}
    for file in changed:
        found |= dict.fromkeys([file, *_mirrors(root, file)], 0)
    for file in changed:
        for near in {*_readers(root, file, graph), *(_inside(file, graph) if file.endswith("__init__.py") else ())}:
            found.setdefault(near, 1)
    edge = list(found)
    while edge:
        edge.sort(key=lambda file: found[file])
        reached = {user: found[file] + 1 for file in reversed(edge) for user in users[file] if user not in found}
        found |= reached
        edge = list(reached)
    return found


def imports(root: Path) -> Graph:
    """File -> the files that it imports, or starts as processes."""
    graph: dict[str, set[str]] = defaultdict(set)
    sys.path[:0] = [str(root), str(root / "trainer")]  # this checkout's packages, not installed ones
    modules = grimp.build_graph(*PACKAGES, cache_dir=str(root / LOGS / "grimp"), exclude_type_checking_imports=True)
    files = {name: file for name in modules.modules if (file := module_file(root, name))}
    for name, file in files.items():
        graph[file] = {files[one] for one in modules.find_modules_directly_imported_by(name) if one in files}
        own = f"{name.partition('.')[0]}."
        named = {one for one in _named(root / file) if one.startswith(own)}  # lazily imported, or started
        graph[file] |= {files[one] for word in named for one in (word, f"{word}.__main__") if one in files} - {file}
    for folder in READ:
        for path in (root / folder).rglob("*.py"):
            graph[path.relative_to(root).as_posix()] = set(_read(root, path))
    for user, pattern in UNSEEN:
        used = {file for file in graph if fnmatchcase(file, pattern)}
        for file in [file for file in graph if fnmatchcase(file, user)]:
            graph[file] |= used - {file}
    return graph


@cache
def module_file(root: Path, name: str) -> str:
    """The file of a module; empty if it is none of this repository's."""
    top, _, rest = name.partition(".")
    place = "/".join([PACKAGES.get(top, top), *filter(None, [rest.replace(".", "/")])])
    if top not in {*PACKAGES, *READ}:
        return ""
    return next((file for file in (f"{place}.py", f"{place}/__init__.py") if (root / file).is_file()), "")


def candidates(root: Path, found: Mapping[str, int], times: Mapping[tuple[str, str], float]) -> list[Candidate]:
    """The tests of the files that were found, without those that have targets of their own."""
    these = []
    for file, distance in found.items():
        if not fnmatchcase(file, "tests/*/test_*.py") or any(fnmatchcase(file, pattern) for pattern in LEFT_OUT):
            continue
        if not (root / file).is_file():
            continue  # deleted
        for part, tests in _tests(root / file).items():
            seconds = times.get((part, file), tests * GUESS[part])
            these += [Candidate(distance, seconds, part, file)] if tests else []
    return sorted(these)


def choose(found: Sequence[Candidate], seconds: float) -> tuple[list[Candidate], list[Candidate]]:
    """Those that run, and those that are left: mirrors and changed tests always run, then what fits, nearest first."""
    chosen: list[Candidate] = []
    left: list[Candidate] = []
    total = 0.0
    for one in found:
        cost = one.seconds / _workers(one.part)
        fits = total + cost <= seconds
        total += cost if fits or not one.distance else 0.0
        (chosen if fits or not one.distance else left).append(one)
    return chosen, left


def durations(folder: Path) -> dict[tuple[str, str], float]:
    """(part, file) -> seconds of its tests in the last `make test`, from pytest's own record."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for part in GUESS:
        path = folder / f"{part}-tests.xml"
        record = ET.parse(path).iter("testcase") if path.exists() else ()  # noqa: S314 - our own file
        for case in record:
            found[part, f"{case.get('classname', '').replace('.', '/')}.py"] += float(case.get("time", 0))
    return found


def _run(part: str, files: Sequence[str]) -> int:
    if not files:
        return 0
    print(f"== {part} tests of {len(files)} files", flush=True)
    command = [*PYTEST, "-q", "-m", MARKS[part], *WORKERS[part], *files]
    code = subprocess.run(command, check=False, cwd=ROOT).returncode
    return 0 if code == NO_TESTS else code


def _workers(part: str) -> int:
    number = WORKERS[part][-1]
    return int(number) if number.isdigit() else os.cpu_count() or 1


def _mirrors(root: Path, file: str) -> Iterator[str]:
    """The test that mirrors a module; its folder's tests for a package."""
    for tests, package in MIRRORS.items():
        if file.startswith(f"{package}/") and file.endswith(".py"):
            path = Path(tests, Path(file).relative_to(package))
            mirror = path.with_name(f"test_{path.name}")
            if (root / mirror).is_file():
                yield mirror.as_posix()


def _readers(root: Path, file: str, graph: Graph) -> Iterator[str]:
    """The tests that read a file which is no Python; the tests below a conftest.py."""
    if Path(file).name == "conftest.py":
        yield from (test for test in graph if test.startswith(f"{Path(file).parent.as_posix()}/"))
    if file.endswith(".py"):
        return
    patterns = [tests for pattern, tests in DATA if fnmatchcase(file, pattern)]
    name = Path(file).name
    for test in graph:
        if test.startswith("tests/") and (
            any(fnmatchcase(test, one) for tests in patterns for one in tests)
            or name in (root / test).read_text(encoding="utf-8")
        ):
            yield test


def _inside(package: str, graph: Graph) -> Iterator[str]:
    """The modules of a package: each import of one of them imports the package, too."""
    return (file for file in graph if file.startswith(package.removesuffix("__init__.py")) and file != package)


def _read(root: Path, path: Path) -> Iterator[str]:
    """What a file imports, directly or as a pytest conftest, and what it names: modules, and scripts of the tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if module_file(root, name) else node.module for name in names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # a command line, or a whole script
            words = [word for word in node.value.split() if word[:1] != "/"]
            names = [word for word in words if "." in word or word in PACKAGES]
            names += [f"{word}.__main__" for word in names]
            scripts = [path.parent / word for word in words if word.endswith(".py")]
            scripts += [path.parent / "scripts" / script.name for script in scripts]
            yield from (
                one.relative_to(root).as_posix() for one in scripts if one.is_file() and one.is_relative_to(root)
            )
        yield from filter(None, (module_file(root, name) for name in names if name.replace(".", "").isidentifier()))
    for folder in path.relative_to(root).parents:
        if (root / folder / "conftest.py").is_file() and path.name.startswith("test_"):
            yield (folder / "conftest.py").as_posix()


def _named(path: Path) -> Iterator[str]:
    """The dotted names in a file's strings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            yield node.value


def _tests(path: Path) -> dict[str, int]:
    """How many fast and slow tests a file has; parametrised ones count once."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    all_slow = any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark" and _is_slow(node.value)
        for node in tree.body
    )
    slow = sum(all_slow or any(map(_is_slow, test.decorator_list)) for test in tests)
    return {"fast": len(tests) - slow, "slow": slow}


def _is_slow(mark: ast.expr) -> bool:
    return "mark.slow" in ast.unparse(mark)


def _git(*arguments: str, check: bool = True) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=check, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
