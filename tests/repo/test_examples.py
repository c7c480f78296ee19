"""Every ``kitctl`` command in the docs and in a command's help is valid."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kitctl.cli import COMMANDS, cli
from kitctl.cli.main import main
from kitctl.render import templates
from tests import fast_yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
JOB_FILE = "name: digits\nnodes: 2\n"


def commands() -> Iterator[str]:
    """The lines of shell blocks, and the examples of commands."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            yield from block.replace("\\\n", " ").splitlines()
    for command in COMMANDS:
        found = cli.get_command(click.Context(cli), command)
        yield from ((found and found.epilog) or "").splitlines()


def kitctl_calls() -> list[list[str]]:
    """The arguments of ``kitctl`` in a command, up to a pipe or the next command."""
    calls = []
    for command in commands():
        words = shlex.split(command.strip(), comments=True)
        if words[:1] == ["kitctl"]:
            end = next((index for index, word in enumerate(words) if word in {"|", "&&", ";", ">"}), len(words))
            calls.append(words[1:end])
    return calls


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the examples use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    for script in ("train.py", "multinode.py"):
        (tmp_path / script).write_text("print('trained')\n")
    (tmp_path / "efa.yaml").write_text("labels: {team: vision}\n")
    (tmp_path / "ours").mkdir()
    shutil.copy(templates.folder() / "pod.yaml.j2", tmp_path / "ours")


@pytest.mark.parametrize("call", kitctl_calls(), ids=" ".join)
def test_an_example_is_valid(call: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        word, *call = call
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found
    command.make_context(word, call)


def test_unsupported_grammar_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        test_an_example_is_valid(["submit", "--knodes", "3"])


@pytest.mark.parametrize("call", [call for call in kitctl_calls() if call[:1] == ["render"]], ids=" ".join)
def test_a_render_example_prints_kubernetes_objects(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(call) == 0
    if "name" not in call:
        objects = [
            item for found in fast_yaml.load_all(capsys.readouterr().out) for item in found.get("items", [found])
        ]
        assert {"Job", "PyTorchJob"} & {item["kind"] for item in objects}


def test_there_are_examples() -> None:
    assert len(kitctl_calls()) > 2 * len(COMMANDS)


def test_the_readme_has_two_commands_for_the_repository() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^make demo ", readme, re.MULTILINE)
    assert re.search(r"^make test ", readme, re.MULTILINE)
    assert re.search(r"^make test ", ci, re.MULTILINE)
