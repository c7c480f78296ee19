"""kitctl's own options after a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from kitctl.cli.main import main

PARSER = """\
import argparse
from dataclasses import dataclass

@dataclass
class Arguments:
    nodes: int = 1

parser = argparse.ArgumentParser()
parser.add_argument("--keep", action="store_true")
parser.add_argument("--dry-run", action="store_true")
"""


@pytest.fixture(autouse=True)
def _scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ok.py").write_text("names = dict(nodes=3)\n", encoding="utf-8")
    Path("own.py").write_text(PARSER, encoding="utf-8")
    Path("elsewhere.py").write_text("from transformers import HfArgumentParser\n", encoding="utf-8")


def outcome(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(words)
    return code, capsys.readouterr().err


@pytest.mark.parametrize("option", ["--dry-run=client", "--dry-run", "--dry_run=server", "--help"])
@pytest.mark.parametrize("program", [["ok.py"], ["own.py"], ["-m", "package.module"]])
def test_an_option_that_decides_whether_a_job_is_created_is_refused(
    option: str, program: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = outcome("submit", "--target", "local", *program, "--lr", "1", option, capsys=capsys)
    assert code == 2
    assert f"error: {option} comes after {program[-1]}" in said
    assert f"kitctl submit {option}" in said
    assert f"for the script: kitctl submit -- {' '.join(program)} {option}" in said
    assert main(["list", "--target", "local", "-A", "-o", "name"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "gets", "fix"),
    [
        (["ok.py", "--nodes", "3"], "ok.py gets --nodes,", "fix: kitctl render --nodes 3 -- ok.py;"),
        (["ok.py", "--nnodes=3", "-x"], "ok.py gets --nnodes,", "fix: kitctl render --nnodes=3 -- ok.py;"),
        (
            ["ok.py", "--nodes", "3", "--lr", "1", "--resume", "a"],
            "ok.py gets --nodes and --resume,",
            "fix: kitctl render --nodes 3 --resume -- ok.py;",
        ),
        (["-m", "a.b", "--name", "x y"], "a.b gets --name,", "fix: kitctl render --name 'x y' -- -m a.b;"),
        (["torchrun", "--nnodes", "2", "ok.py", "--keep", "9"], "ok.py gets --keep,", "render --keep 9 -- ok.py;"),
    ],
)
def test_others_are_warned_of(words: list[str], gets: str, fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = outcome("render", *words, capsys=capsys)
    assert code == 0
    (warning,) = [line for line in said.splitlines() if line.startswith("warning:")]
    assert gets in warning
    assert fix in warning


@pytest.mark.parametrize(
    ("words", "gets", "ours"),
    [
        (["ok.py", "--dry-run=client"], "ok.py gets --dry-run,", "kitctl submit --dry-run=client -- ok.py"),
        (["ok.py", "--resume", "--lr", "1"], "ok.py gets --resume,", "kitctl submit --resume -- ok.py"),
        (["ok.py", "--help"], "ok.py gets --help,", "kitctl submit --help -- ok.py"),
        (["own.py", "--keep", "--name", "a"], "own.py gets --name,", "kitctl submit --name a -- own.py"),
        (
            ["torchrun", "--nnodes", "2", "ok.py", "--keep", "9"],
            "ok.py gets --keep,",
            "kitctl submit --keep 9 -- ok.py",
        ),
    ],
)
def test_after_two_dashes_what_the_script_does_not_mention_is_warned_of_and_passed_on(
    words: list[str], gets: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["submit", "--dry-run=client", "--", *words])
    rendered = capsys.readouterr()
    assert code == 0
    (warning,) = [line for line in rendered.err.splitlines() if line.startswith("warning:")]
    assert gets in warning
    assert warning.endswith(f"if it is for kitctl: {ours}")
    assert words[-1] in rendered.out


@pytest.mark.parametrize(
    "words",
    [
        ["--", "own.py", "--nodes", "3", "--dry-run", "--help"],  # a parser has --help
        ["--", "ok.py", "--nodes", "3"],  # a word of its text
        ["--", "elsewhere.py", "--resume", "--help"],  # its parser may know them
        ["--", "ok.py", "--", "--dry-run"],
        ["--", "/opt/missing.py", "--dry-run"],  # of the image: its text is not known
        ["--", "-m", "a.b", "--nodes", "3"],
        ["ok.py", "--", "--nodes", "3"],  # the script sees the --, and so does the reader
        ["ok.py", "--lr", "1", "-n", "5", "--nodesize", "3", "nodes"],
        ["own.py", "--nodes", "3", "--keep"],  # options that it has itself
        ["torchrun", "--nnodes", "2", "ok.py"],
        ["--workload", "toy", "--", "--epochs", "2"],
    ],
)
def test_what_is_the_scripts_is_not(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, said = outcome("submit", "--dry-run=client", *words, capsys=capsys)
    assert code == 0
    assert "warning" not in said
