"""Which tests `make test-changed` chooses for which change."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import changed_tests
from tools.changed_tests import ROOT, Candidate, candidates, choose, distances, durations

pytestmark = pytest.mark.xdist_group("changed")  # one worker makes the graph

# A changed file, and tests that it can break, with the imports in between: mirrored, imported, in another process.
REACHED = [
    ("kitctl/state/phase.py", "tests/kitctl/state/test_phase.py", 0),
    ("trainer/kittrain/rank/snapshots/files/shards.py", "tests/trainer/rank/snapshots/files/test_layout.py", 1),
    ("tools/run_tests.py", "tests/repo/test_run_tests.py", 0),
    ("tests/local/test_kill.py", "tests/local/test_kill.py", 0),
    ("tests/local/conftest.py", "tests/local/test_kill.py", 1),
    ("tests/trainer/loops.py", "tests/trainer/rank/training/test_run.py", 1),
    ("tests/trainer/scripts/plain.py", "tests/trainer/test_plain_script.py", 1),
    ("trainer/kittrain/workloads/toy.py", "tests/local/test_lifecycle.py", 1),
    ("trainer/kittrain/agent/forkserver.py", "tests/local/test_kill.py", 2),
    ("trainer/kittrain/agent/rendezvous/hub.py", "tests/local/test_kill.py", None),
    ("kitctl/cli/commands/drill.py", "tests/local/test_drill.py", None),
    ("kitctl/state/__init__.py", "tests/kitctl/state/test_phase.py", None),
    ("trainer/kitjob/names.py", "tests/trainer/agent/processes/test_pod_supervisor.py", 1),
    ("manifests/indexed-job.yaml.j2", "tests/kitctl/render/test_objects.py", 1),
    ("charts/training-job/values.yaml", "tests/charts/test_values.py", 1),
    ("docs/from-tutorial-to-cluster.md", "tests/tutorial/test_guide.py", 1),
    ("README.md", "tests/repo/test_docs.py", 1),
    ("tests/golden/render/some/all.yaml", "tests/kitctl/render/test_objects.py", 1),
]
UNREACHED = [
    ("kitctl/output/view/text.py", "tests/trainer/rank/training/test_run.py"),
    ("trainer/kittrain/rank/training/loop.py", "tests/kitctl/state/test_phase.py"),
    ("docs/drill.md", "tests/kitctl/state/test_phase.py"),
]


@pytest.fixture(scope="module", autouse=True)
def _one_graph() -> Iterator[None]:
    graph = changed_tests.imports(ROOT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changed_tests, "imports", lambda _: graph)
        yield


@pytest.mark.parametrize(("changed", "test", "distance"), REACHED)
def test_a_change_reaches_what_mirrors_imports_starts_or_reads_it(
    changed: str, test: str, distance: int | None
) -> None:
    found = distances(ROOT, [changed])
    assert test in found
    assert distance in {None, found[test]}


@pytest.mark.parametrize(("changed", "test"), UNREACHED)
def test_a_change_does_not_reach_what_cannot_notice_it(changed: str, test: str) -> None:
    assert test not in distances(ROOT, [changed])


def test_each_module_is_reached_from_a_test() -> None:
    graph = changed_tests.imports(ROOT)
    edge = seen = {file for file in graph if candidates(ROOT, {file: 0}, {})}
    while edge:
        edge = {other for file in edge for other in graph.get(file, ())} - seen
        seen = seen | edge
    theirs = ("trainer/kittrain/integrations/", "trainer/kittrain/helper/")  # frameworks' own tests; the cluster's
    modules = {file for file in graph if file.startswith(("kitctl/", "trainer/")) and not file.startswith(theirs)}
    assert len(modules) > 300
    assert not {file for file in modules - seen if not file.endswith("__init__.py")}


def test_the_nearest_run_first_and_what_no_longer_fits_is_left() -> None:
    found = [
        Candidate(0, 1000.0, "slow", "tests/mirror.py"),
        Candidate(1, 10.0, "fast", "tests/near.py"),
        Candidate(1, 1000.0, "slow", "tests/long.py"),
        Candidate(2, 10.0, "fast", "tests/far.py"),
    ]
    chosen, left = choose(found, 1000.0)
    assert [one.file for one in chosen] == ["tests/mirror.py", "tests/near.py", "tests/long.py", "tests/far.py"]
    chosen, left = choose(found, 4.0)
    assert [one.file for one in chosen] == ["tests/mirror.py"]
    assert [one.file for one in left] == ["tests/near.py", "tests/long.py", "tests/far.py"]


def test_neither_the_clusters_tests_nor_deleted_ones_are_candidates() -> None:
    found = dict.fromkeys(
        ("tests/cluster/submit/test_submit.py", "tests/repo/test_gone.py", "tests/trainer/loops.py"), 1
    )
    assert not candidates(ROOT, found, {})


def test_a_file_has_fast_and_slow_tests_of_their_own_duration(tmp_path: Path) -> None:
    case = '<testcase classname="tests.local.test_python" name="{}" time="{}"/>'
    (tmp_path / "fast-tests.xml").write_text(f"<t>{case.format('a', 1.5)}{case.format('b', 2)}</t>", encoding="utf-8")
    times = durations(tmp_path)
    assert times == {("fast", "tests/local/test_python.py"): 3.5}
    found = candidates(ROOT, {"tests/local/test_python.py": 2}, times)
    assert found == [
        Candidate(2, 3.5, "fast", "tests/local/test_python.py"),
        Candidate(2, 2 * changed_tests.GUESS["slow"], "slow", "tests/local/test_python.py"),
    ]


def test_changed_is_what_was_committed_edited_added_and_renamed_since_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    monkeypatch.setattr(changed_tests, "ROOT", tmp_path)
    git("init", "-q", "-b", "main")
    for name in ("kept", "edited", "moved", "committed"):
        (tmp_path / name).write_text(f"{name}\n" * 9, encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "committed").write_text("x", encoding="utf-8")
    git("commit", "-qam", "second")
    assert changed_tests.changes("") == ("HEAD~1", ["committed"])
    (tmp_path / "edited").write_text("x", encoding="utf-8")
    (tmp_path / "new file").write_text("x", encoding="utf-8")
    git("mv", "moved", "there")
    changed = ["committed", "edited", "moved", "new file", "there"]
    assert changed_tests.changes("") == ("HEAD~1", changed)
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert changed_tests.changes("") == ("origin/main", changed[1:])
    assert changed_tests.changes("HEAD~1") == ("HEAD~1", changed)


@pytest.mark.wide
def test_what_fails_is_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("def test_it():\n    assert False\n", encoding="utf-8")
    monkeypatch.setattr(changed_tests, "changes", lambda _: ("HEAD~1", ["it.py"]))
    monkeypatch.setattr(changed_tests, "candidates", lambda *_: [Candidate(0, 1.0, "fast", str(test))])
    monkeypatch.setattr(changed_tests, "WORKERS", {"fast": ("-n", "1"), "slow": ("-n", "1")})
    assert changed_tests.main([]) == 1
    test.write_text("import pytest\npytestmark = pytest.mark.slow\n", encoding="utf-8")
    assert changed_tests.main([]) == 0
