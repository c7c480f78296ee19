"""The job's program: workloads, launch lines, and the messages about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from kitctl.base.errors import UsageError
from kitctl.cli.program import program


def test_a_workload_is_a_module_and_gets_all_arguments() -> None:
    expected = {"nodes": 3, "command": ["-m", "kittrain.workloads.toy"], "args": ["5", "1"]}
    assert program(["5", "1"], {"nodes": 3}, "toy") == expected
    assert program([], {}, "mnist") == {"command": ["-m", "kittrain.workloads.mnist"], "args": []}


def test_an_unknown_workload_is_an_error_that_lists_them() -> None:
    with pytest.raises(UsageError) as caught:
        program([], {}, "minst")
    assert "there are allreduce, digits, mnist, text, lm, toy" in caught.value.message
    assert caught.value.fix == "did you mean mnist?"


def test_without_arguments_the_job_files_command_is_used() -> None:
    assert program([], {"nodes": 3}, None) == {"nodes": 3}


def test_a_module_needs_a_name() -> None:
    with pytest.raises(click.UsageError, match="-m needs a module"):
        program(["-m"], {}, None)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, "kitctl submit --nodes 2 --procs-per-node 4 -- train.py"),
        ({"nodes": 3}, "kitctl submit --nodes 3 --procs-per-node 4 -- train.py"),
        ({"policy": {"ttl": "1h"}}, "kitctl submit --nodes 2 --procs-per-node 4 -- train.py"),
    ],
)
def test_the_parsed_launch_line_is_printed_and_flags_override_it(
    flags: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["torchrun", "--nnodes", "2", "--nproc-per-node", "4", "--rdzv-id", "1", "train.py"]
    fields = program(words, flags, None)
    assert fields["nodes"] == flags.get("nodes", 2)
    assert (fields["procsPerNode"], fields["command"], fields["args"]) == (4, ["train.py"], [])
    assert fields.get("policy") == flags.get("policy")
    output = capsys.readouterr()
    assert output.err == f"read as: {expected}\n  left out, as kitctl sees to it: --rdzv-id\n"
    assert output.out == ""


def test_a_script_with_a_local_rank_argument_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("parser.add_argument('--local_rank', type=int)\n")
    assert program(["train.py", "--lr", "1"], {}, None)["args"] == ["--local_rank=${local_rank}", "--lr", "1"]
    assert capsys.readouterr().err == "each rank gets its --local_rank, as train.py expects\n"
    assert program(["other.py", "--lr", "1"], {}, None)["args"] == ["--lr", "1"]
