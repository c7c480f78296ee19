"""What `make test` reports if no cluster can be created, or if a background command is slow or fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from kitctl.targets.local import memory_folders
from tests.cluster.kind import host
from tools import run_tests, system_changes


@pytest.fixture(autouse=True)
def _no_cluster_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "obstacle", lambda: "no docker daemon answers")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv(system_changes.VARIABLE, raising=False)


@pytest.mark.parametrize(("ci", "outcome", "code"), [("", "SKIPPED", 0), ("true", "FAILED", 1)])
def test_a_machine_without_docker_skips_with_the_reason_but_fails_under_ci(
    ci: str, outcome: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", ci)
    assert run_tests.main(["cluster"]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(outcome)
    assert last.endswith("no docker daemon answers")


def test_changes_to_the_machine_are_announced_before_the_cluster_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    announced: list[str] = []
    monkeypatch.setattr(host, "obstacle", lambda: "")
    monkeypatch.setattr(host, "planned_changes", lambda: ["install Debian packages (jq)"])

    def with_cluster(*_: object) -> list[run_tests.Result]:
        announced.append(capsys.readouterr().out)
        return []

    monkeypatch.setattr(run_tests, "_with_cluster", with_cluster)
    assert run_tests.main(["cluster"]) == 0
    assert announced == ["about to change this machine: install Debian packages (jq) (KIT_NO_SYSTEM=1 declines)\n"]


def test_declined_changes_skip_the_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(host, "obstacle", lambda: "")
    monkeypatch.setattr(host, "planned_changes", lambda: ["start a docker daemon"])
    monkeypatch.setenv(system_changes.VARIABLE, "1")
    monkeypatch.setattr(run_tests, "_with_cluster", lambda *_: pytest.fail("a cluster was made"))
    assert run_tests.main(["cluster"]) == 0
    assert "SKIPPED" in capsys.readouterr().out.splitlines()[-1]


def test_a_failure_is_not_hidden_by_what_passed_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    results = [run_tests.Result("slow tests", "FAILED"), run_tests.Result("cluster up", "passed")]
    assert run_tests._summary(results) == 1
    assert "make cluster-down" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("up", "outcomes"),
    [
        (1, {"fast tests": "passed", "cluster up": "FAILED", "wide tests": "passed", "power tests": "FAILED"}),
        (0, {"fast tests": "passed", "cluster up": "passed", "wide tests": "passed", "power tests": "passed"}),
    ],
)
def test_local_tests_run_whether_or_not_the_cluster_comes_up(
    up: int, outcomes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = (sys.executable, "-c", "")
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    monkeypatch.setattr(run_tests, "CLUSTER_UP", (sys.executable, "-c", f"exit({up})"))
    monkeypatch.setattr(run_tests, "_command", lambda _: passes)
    monkeypatch.setattr(run_tests, "PAUSE", passes)
    monkeypatch.setattr(run_tests, "RESUME", passes)
    results = run_tests._with_cluster(["fast tests", "wide tests"], ["wide cluster tests", "power tests"])
    assert dict(result[:2] for result in results).items() >= outcomes.items()
    names = [result.name for result in results]
    assert names[:2] == ["fast tests", "cluster up"]
    assert len(names) == 5


@pytest.mark.parametrize("code", [0, 3])
def test_the_cluster_is_paused_beside_the_slow_tests_and_goes_on_afterwards(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(word: str, code: int = 0) -> tuple[str, ...]:
        return ("sh", "-c", f"echo {word} >> '{tmp_path}/order'; exit {code}")

    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    monkeypatch.setattr(run_tests, "CLUSTER_UP", noted("up"))
    monkeypatch.setattr(run_tests, "PAUSE", noted("pause"))
    monkeypatch.setattr(run_tests, "RESUME", noted("resume"))
    monkeypatch.setattr(run_tests, "_command", lambda name: noted(name, code if name == "power tests" else 0))
    results = run_tests._with_cluster([], ["power tests"])
    assert (tmp_path / "order").read_text().split("\n")[1:-1] == ["power tests", "pause", "resume"]
    assert results[-1][:2] == ("power tests", "FAILED" if code else "passed")


def test_an_interrupted_run_leaves_no_paused_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> run_tests.Result:
        raise KeyboardInterrupt

    passes = (sys.executable, "-c", "")
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    monkeypatch.setattr(run_tests, "CLUSTER_UP", passes)
    monkeypatch.setattr(run_tests, "PAUSE", passes)
    monkeypatch.setattr(run_tests, "RESUME", ("touch", str(tmp_path / "resumed")))
    monkeypatch.setattr(run_tests, "_command", lambda _: passes)
    monkeypatch.setattr(run_tests, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tests._with_cluster(["wide tests"], ["power tests"])
    assert (tmp_path / "resumed").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_a_background_command_is_shown_to_its_end(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    script = f"import time; print('early', flush=True); time.sleep(0.5); print('late'); exit({code})"
    with run_tests._background("some script", (sys.executable, "-c", script)) as background:
        assert background.follow().outcome == ("FAILED" if code else "passed")
    assert capsys.readouterr().out.splitlines() == ["== some script", "early", "late"]


def test_a_background_command_ends_with_its_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    with run_tests._background("sleep", ("sleep", "600")) as background:
        assert background.process.poll() is None
    assert background.process.poll() is not None


def test_a_background_command_took_until_its_last_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with run_tests._background("linters", ("true",)) as background:
        background.process.wait()
        os.utime(background.log, (0, background.began + 5))
        result = background.follow()
    assert result.outcome == "passed"
    assert result.seconds == pytest.approx(5)


def test_the_linters_run_beside_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lint = ("timeout", "30", "sh", "-c", "until [ -e tested ]; do sleep 0.01; done; echo linted")
    fast = ("touch", "tested")
    monkeypatch.setattr(run_tests, "_command", {"lint": lint, "fast tests": fast}.get)
    results = run_tests._run_all(["lint", "fast tests"])
    assert [result[:2] for result in results] == [("lint", "passed"), ("fast tests", "passed")]


def marks(name: str) -> str:
    """The expression by which a command selects tests."""
    command = run_tests._command(name)
    return command[command.index("-m", command.index("pytest")) + 1]


def test_all_files_with_slow_tests_are_run_and_the_longest_first() -> None:
    files = run_tests.files("slow")
    assert files[0].startswith("tests/local/")
    assert files.index("tests/tutorial/test_guide.py") < files.index("tests/kitctl/code/test_bootstrap.py")
    assert {*files} <= {*run_tests._command("slow tests")}
    others = [path for path in Path("tests").rglob("*.py") if not path.name.startswith("test_")]
    marking = [str(path) for path in others if "mark.slow" in path.read_text(encoding="utf-8")]
    assert marking == ["tests/frameworks/marks.py"], "whose tests have a target of their own"


def test_each_test_that_needs_no_cluster_runs_once() -> None:
    commands = ("fast tests", "slow tests", "wide tests")
    for slow, wide in product([False, True], repeat=2):
        has = {"long": False, "frameworks": False, "slow": slow, "wide": wide}
        chosen = [name for name in commands if eval(marks(name), has.copy())]
        assert chosen == [commands[2] if wide else commands[slow]]
        assert not [name for name in commands if eval(marks(name), has | {"long": True})]
    assert {*run_tests.files("wide")} <= {*run_tests._command("wide tests")}


def test_each_test_of_the_cluster_runs_once_with_the_controllers_that_it_needs() -> None:
    commands = ("cluster tests", "wide cluster tests", "power tests", "controllers' tests")
    for alone, wide, controllers in product([False, True], repeat=3):
        has = {"long": False, "alone": alone, "wide": wide, "controllers": controllers}
        chosen = [name for name in commands if eval(marks(name), has.copy())]
        assert chosen == [commands[3] if controllers else commands[2] if alone else commands[wide]]
        assert not [name for name in commands if eval(marks(name), has | {"long": True})]


@pytest.mark.wide
def test_what_runs_without_the_controllers_makes_no_jobs_that_need_them() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/cluster", "-m", marks("cluster tests")]
    environ = {**os.environ, "KIT_CLUSTER_TESTS": "1"}
    done = subprocess.run(command, check=True, env=environ, capture_output=True, text=True)
    tests = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(tests) > 50
    assert not [
        test for test in tests if re.search(r"JobSet|TrainJob|test_kueue|test_kinds|test_sdk|accepts_each_recipe", test)
    ]


@pytest.mark.parametrize(
    ("part", "words"),
    [("cluster", []), ("wide-cluster", []), ("controllers", ["controllers"]), ("long", ["controllers"])],
)
def test_controllers_are_built_only_for_what_needs_them(
    part: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = (sys.executable, "-c", "")
    made = tmp_path / "made"
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    monkeypatch.setattr(run_tests, "CLUSTER_UP", ("sh", "-c", f"echo $* > '{made}'", "sh", "up"))
    monkeypatch.setattr(run_tests, "_command", lambda _: passes)
    monkeypatch.setattr(run_tests, "PAUSE", passes)
    monkeypatch.setattr(run_tests, "RESUME", passes)
    run_tests._with_cluster([], [*run_tests.PARTS[part]])
    assert made.read_text().split() == ["up", *words]


def test_files_of_short_tests_are_in_memory_and_go_with_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(run_tests, "MEMORY", tmp_path)
    monkeypatch.setattr(run_tests, "_room", lambda: run_tests.ROOM)
    for pid in (os.getpid(), 2**22 + 1):  # the second is none: the largest is 2**22
        (tmp_path / f"kit-{pid}-x" / "folder").mkdir(parents=True)
    (of_a_job := tmp_path / f"{memory_folders.PREFIX}x").mkdir()
    kept = {of_a_job, tmp_path / f"kit-{os.getpid()}-x"}
    with run_tests._files_in_memory():
        (folder,) = set(tmp_path.iterdir()) - kept
        for name, found in (("fast tests", str(folder)), ("wide tests", None), ("cluster up", None)):
            assert run_tests._environ(name).get("TMPDIR") == found, name
    assert set(tmp_path.iterdir()) == kept, "the snapshots of a job that runs here are not the tests'"


@pytest.mark.parametrize("reason", ["no room", "the user's choice"])
def test_files_of_tests_are_where_they_have_room(reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(run_tests, "MEMORY", tmp_path)
    monkeypatch.setattr(run_tests, "_room", lambda: run_tests.ROOM - (reason == "no room"))
    if reason != "no room":
        monkeypatch.setenv("TMPDIR", "/elsewhere")
    with run_tests._files_in_memory():
        assert run_tests._environ("fast tests").get("TMPDIR") == os.environ.get("TMPDIR")
        assert not list(tmp_path.iterdir())
