"""``kitctl init`` writes a copy of a workload's script, which kitctl can submit."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kitctl.base.errors import ConflictError, UsageError
from kitctl.cli import cli
from kitctl.input.workloads import WORKLOADS

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kitctl(*words: str) -> Result:
    return CliRunner().invoke(cli, words, catch_exceptions=False)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_script_is_the_workloads_with_the_new_name_in_its_examples(name: str) -> None:
    assert kitctl("init", name, "mine.py").output.startswith("mine.py\n")
    text = Path("mine.py").read_text()
    assert f"kittrain.workloads.{name}" not in text
    original = (ROOT / "trainer" / "kittrain" / "workloads" / f"{name}.py").read_text()
    changed = [line for line in text.splitlines() if line not in original.splitlines()]
    assert 1 <= len(changed) <= 3
    assert all(" mine.py" in line for line in changed)
    compile(text, "mine.py", "exec")


def test_the_default_file_is_named_after_the_workload() -> None:
    result = kitctl("init", "mnist")
    assert (result.stdout, result.stderr) == ("mnist.py\n", "  kitctl submit --nodes 2 --follow -- mnist.py\n")
    assert kitctl("render", "-o", "name", "--", "mnist.py").exit_code == 0


def test_a_file_is_overwritten_only_with_force() -> None:
    Path("mnist.py").write_text("mine\n")
    with pytest.raises(ConflictError, match=r"mnist.py exists"):
        kitctl("init", "mnist")
    assert Path("mnist.py").read_text() == "mine\n"
    assert kitctl("init", "mnist", "--force").exit_code == 0
    assert "ConvNet" in Path("mnist.py").read_text()


def test_an_unwritable_file_is_an_error() -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        kitctl("init", "mnist", "no/folder/here.py")
    with pytest.raises(UsageError, match="unknown workload 'imagenet'; there are allreduce, digits"):
        kitctl("init", "imagenet")
    assert list(Path().iterdir()) == []
