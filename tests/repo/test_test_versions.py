"""``make test-versions``: how it reads pairs and results. The runs themselves take gigabytes and minutes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tools import test_versions as versions

ROOT = Path(__file__).parents[2]


def test_the_default_pairs_begin_with_the_oldest_python_and_torch_that_are_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = versions.parse(versions.DEFAULT[0])
    assert project["requires-python"] == f">={oldest.python}"
    (torch,) = (line for line in project["optional-dependencies"]["trainer"] if line.startswith("torch>"))
    assert f"{torch.removeprefix('torch>=')}.0" == oldest.torch


@pytest.mark.parametrize("argument", ["3.11", "3.11:", "2.7:2.6.0", "3.11:latest", "3.11:2.6"])
def test_an_invalid_pair_prints_the_usage(argument: str) -> None:
    with pytest.raises(SystemExit, match="PYTHON:TORCH"):
        versions.parse(argument)


def test_results_are_read_from_pytests_last_lines() -> None:
    log = "12 passed, 1 skipped in 3.10s\nFAILED tests/a.py\n==== 1 failed, 2 passed in 61.00s (0:01:01) ====\n"
    assert list(versions.summaries(log)) == ["12 passed, 1 skipped", "1 failed, 2 passed"]


def test_a_pair_that_cannot_be_installed_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def uv(log: Path, *_: str | Path) -> int:
        log.write_text("\N{MULTIPLICATION SIGN} No interpreter found for Python 3.14\n")
        return 2

    monkeypatch.setattr(versions, "_uv", uv)
    row = versions.check(versions.parse("3.14:newest"))
    assert row == ("3.14", "newest", "not available", "no Python 3.14: No interpreter found for Python 3.14")
    assert versions.table([row])[-1].startswith("| 3.14 | newest | not available |")


def test_the_tests_own_packages_are_those_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(list(versions.test_requirements())) == len(versions.TEST_PACKAGES)
