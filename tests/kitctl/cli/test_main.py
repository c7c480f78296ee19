"""The whole command line: messages, exit codes, and no files left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kitctl
from kitctl.cli import COMMANDS
from kitctl.cli.main import main
from kitctl.render import templates


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "field", "fix"),
    [
        (["--nodes", "0"], "nodes: 0", "fix: give a whole number of at least 1"),
        (["--nodes", "4:2"], "nodes: 4:2", "fix: write 2:4"),
        (["absent.py"], "command: absent.py does not exist", "fix: give a path from this folder"),
        (["--name", "a" * 70], "name: 70 characters", "fix: use at most 61"),
        (["-e", "WORLD_SIZE=3"], "env.WORLD_SIZE: ", "fix: use another name"),
        (
            ["--nodes", "2", "--set", "snapshots.accessMode=ReadWriteOnce"],
            "snapshots.accessMode: ",
            "fix: use ReadWriteMany",
        ),
        (["-f", "unknown.yaml"], "polcy: unknown key (line 1)", "fix: did you mean policy?"),
        (["-f", "broken.yaml"], "broken.yaml:2: ", "fix: make it a YAML"),
        (["--backend", "nccl"], "backend: nccl needs GPUs", "fix: set gpusPerNode"),
        (["-e", "KITCTL_TEST_IS_NOT_SET"], "KITCTL_TEST_IS_NOT_SET is not set", "give KITCTL_TEST_IS_NOT_SET=VALUE"),
        (["-e", "=x"], "'=x' is not KEY=VALUE", "--env"),
        (["--volume", "data"], "'data' is not CLAIM:/PATH", "--volume"),
        (["--env-file", "absent"], "absent cannot be read", "--env-file"),
        (["-m"], "-m needs a module", "as in -m package.module"),
        (["-f", "absent.yaml"], "absent.yaml", "does not exist"),
    ],
)
@pytest.mark.parametrize("command", [["render"], ["submit", "--dry-run=client"]])
def test_invalid_input_names_field_and_fix_and_creates_nothing(
    command: list[str],
    arguments: list[str],
    field: str,
    fix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unknown.yaml").write_text("polcy: {}\n")
    Path("broken.yaml").write_text("env: [\nnodes: }\n")
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(*command, *arguments, capsys=capsys)
    assert code == 2
    assert field in err
    assert fix in err
    assert not out
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path(os.environ["XDG_STATE_HOME"]).exists()


def test_render_has_no_effect_but_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    templates._environment.cache_clear()  # the cached one uses an earlier test's cache folder
    code, out, err = run("render", "--nodes", "2", "-o", "name", capsys=capsys)
    assert (code, err) == (0, "")
    assert out.endswith("job.batch/digits\n")
    assert not list(tmp_path.iterdir())
    (cache,) = Path(os.environ["XDG_CACHE_HOME"], "kitctl").iterdir()
    assert cache.stat().st_mode & 0o777 == 0o700, "a compiled template is code: other users must not write it"


def test_an_unknown_command_has_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean submit (" in run("sumbit", capsys=capsys)[2]
    code, _, err = run("frobnicate", capsys=capsys)
    assert code == 2
    assert "see kitctl --help" in err


def test_help_lists_every_command_by_section(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("--help", capsys=capsys)
    assert code == 0
    assert [
        line.split()[0] for line in out.splitlines() if line[:2] == "  " and line.split()[:1][0] in COMMANDS
    ] == list(COMMANDS)


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", capsys=capsys)[:2] == (0, f"kitctl {kitctl.__version__}\n")
    assert f"kitctl {kitctl.__version__}\n" in run("version", capsys=capsys)[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_complete_kitctl(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "_KITCTL_COMPLETE" in run("completion", shell, capsys=capsys)[1]


def test_completion_completes_commands() -> None:
    environment = {**os.environ, "_KITCTL_COMPLETE": "bash_complete", "COMP_WORDS": "kitctl sus", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "kitctl"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "plain,suspend\n"


def test_an_unexpected_error_is_one_line_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **_options: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("kitctl.render.objects.manifests", fails)
    code, _, err = run("render", capsys=capsys)
    assert code == 1
    assert err == "error: ZeroDivisionError: by zero\nthis is a bug in kitctl; KITCTL_DEBUG=1 shows the traceback\n"
    monkeypatch.setenv("KITCTL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["render"])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "error: Permission denied: /x\nfix: let this user"),
        (OSError(errno.ENOSPC, "No space left", "/x"), "error: No space left: /x\nfix: make room there"),
        (OSError(errno.EMFILE, "Too many open files"), "error: Too many open files\nfix: raise the limit"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "error: the current folder is gone\nfix: cd"),
    ],
)
def test_what_this_machine_refuses_is_no_bug_of_kitctl(
    error: OSError, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("kitctl.render.objects.manifests", fails)
    code, _, err = run("render", capsys=capsys)
    assert code == 1
    assert err.startswith(told)
    assert "bug" not in err


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kitctl.render.objects.manifests", interrupted)
    assert main(["render"]) == 130


def test_a_closed_pipe_is_not_an_error() -> None:
    command = ["bash", "-c", '"$0" -m kitctl schema | head -c 1', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{", "")
