"""The documentation matches the code: generated pages are fresh, commands are explained, links are valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import click
import pytest

from kitctl.cli import COMMANDS, cli
from kitctl.output.documents import DOCUMENTS
from tools.gen_docs import pages

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_a_generated_page_is_fresh(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages()[path], "make docs"


ROWS = [
    line for line in (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").split("\n") if line[:2] == "| "
]
PLACES = re.compile(r"\b(NAME|OTHER|THIRD|KEYS)\b")  # what stands there for words of a message


def test_each_row_of_troubleshooting_says_something_of_its_own() -> None:
    for row in ROWS:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        silent = [cell for cell in cells if cell != "-" and not re.search(r"\w", PLACES.sub("", cell))]
        assert silent == [], f"give its rule an example (seen=), or a cause and a fix in words: {row}"


def test_no_section_of_a_generated_page_is_there_twice() -> None:
    for path, text in pages().items():
        if path.suffix == ".md":
            titles = re.findall(r"^#+ .*$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
            assert len(set(titles)) == len(titles), path.name


def test_each_kind_of_document_names_the_command_that_prints_it() -> None:
    page = pages()[ROOT / "docs" / "json-output.md"]
    for kind in get_args(DOCUMENTS):
        assert re.search(rf"^\| `kitctl .*\[{kind.__name__}\]\(#{kind.__name__.lower()}\)", page, re.MULTILINE), kind


def click_command(command: str) -> click.Command:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_help_and_an_example_of_itself(command: str) -> None:
    found = click_command(command)
    assert found.help
    assert "Examples:\n" in (found.epilog or "")
    assert f"kitctl {command}" in (found.epilog or "")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_table_of_commands_agrees_with_the_commands_help(command: str) -> None:
    first_words = COMMANDS[command].help.split()[0]
    assert (click_command(command).help or "").startswith(first_words)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command: str) -> None:
    found = click_command(command)
    parts = [found, *(found.commands.values() if isinstance(found, click.Group) else ())]
    options = [option for part in parts for option in part.params if isinstance(option, click.Option)]
    silent = [option.name for option in options if not option.hidden and not (option.help or "").rstrip().endswith(".")]
    assert silent == [], "their help is missing or does not end as a sentence"


def test_every_command_that_is_a_file_is_in_the_table() -> None:
    files = (ROOT / "kitctl" / "cli" / "commands").glob("*.py")
    found = {path.stem.replace("_", "-") for path in files if "\ndef command(" in path.read_text(encoding="utf-8")}
    assert found == COMMANDS.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_are_valid(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    local = [(path, anchor) for path, anchor in LINK.findall(text) if not path.startswith("http")]
    for path, anchor in local:
        target = (page.parent / path) if path else page
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, anchor


@pytest.mark.parametrize("package", ["kitctl", "trainer/kittrain"])
def test_the_architecture_names_every_room(package: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = {part for name in re.findall(r"`([\w/]+)(?:\.py)?/?`", page) for part in name.split("/")}
    rooms = {path.parent.name for path in (ROOT / package).glob("*/**/__init__.py")}
    assert len(rooms) > 10
    assert rooms - named == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_has_a_placeholder_for_an_address_of_the_project(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(OWNER/REPO(SITORY)?|REGISTRY/trainer:VERSION|YOUR[-_]ORG|TODO|FIXME)\b", text)


TESTED = re.compile(r"\]\(\.\./(tests/[^)]+\.py)\): ((?:`\w+`(?:, )?)+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_test_that_a_page_names_exists(page: Path) -> None:
    named = [
        (file, name)
        for file, names in TESTED.findall(page.read_text(encoding="utf-8"))
        for name in re.findall(r"\w+", names)
    ]
    missing = [one for one in named if f"def {one[1]}(" not in (ROOT / one[0]).read_text(encoding="utf-8")]
    assert missing == []
    assert named or page.name != "security.md"


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_a_date_and_a_status_and_is_named_where_it_is_implemented(page: Path) -> None:
    number = int(page.name[:4])
    title, _, status, *_ = page.read_text(encoding="utf-8").split("\n")
    assert title.startswith(f"# {number}. ")
    assert re.fullmatch(r"\*\d{4}-\d\d-\d\d, (accepted(, amended since)?|replaced by \[\d+\]\(.*\))\*", status), status
    sources = [path for folder in ("kitctl", "trainer") for path in (ROOT / folder).rglob("*.py")]
    named = [path for path in sources if re.search(rf"[Dd]ecision {number}\b", path.read_text(encoding="utf-8"))]
    assert named
