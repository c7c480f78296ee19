"""Files that only GitHub validates: issue forms, the pull request template, Dependabot's settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")

TEXT: Final = {"type": "string", "minLength": 1}
ELEMENT: Final = {
    "type": "object",
    "required": ["type", "attributes"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["markdown", "textarea", "input", "dropdown", "checkboxes"]},
        "id": {"type": "string", "pattern": "^[a-z][a-z0-9_-]*$"},
        "attributes": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                **dict.fromkeys(("value", "label", "description", "placeholder", "render"), TEXT),
                "options": {"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True},
            },
        },
        "validations": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"required": {"type": "boolean"}},
        },
    },
    "if": {"properties": {"type": {"const": "markdown"}}},
    "then": {"properties": {"attributes": {"required": ["value"]}}},
    "else": {"required": ["id"], "properties": {"attributes": {"required": ["label"]}}},
}
FORM: Final = {
    "type": "object",
    "required": ["name", "description", "body"],
    "additionalProperties": False,
    "properties": {
        **dict.fromkeys(("name", "description", "title"), TEXT),
        "labels": {"type": "array", "items": TEXT},
        "body": {"type": "array", "items": ELEMENT, "minItems": 1},
    },
}
DEPENDABOT: Final = {
    "type": "object",
    "required": ["version", "updates"],
    "additionalProperties": False,
    "properties": {
        "version": {"const": 2},
        "updates": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["package-ecosystem", "directory", "schedule"],
                "additionalProperties": False,
                "properties": {
                    "package-ecosystem": {"enum": ["pip", "uv", "github-actions", "docker"]},
                    "directory": {"type": "string", "pattern": "^/"},
                    "schedule": {
                        "type": "object",
                        "required": ["interval"],
                        "additionalProperties": False,
                        "properties": {"interval": {"enum": ["daily", "weekly", "monthly"]}},
                    },
                    "groups": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "object",
                            "additionalProperties": False,
                            "minProperties": 1,
                            "properties": {
                                "patterns": {"type": "array", "items": TEXT},
                                "update-types": {"type": "array", "items": {"enum": ["major", "minor", "patch"]}},
                            },
                        },
                    },
                },
            },
        },
    },
}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_is_valid(path: Path) -> None:
    form = load(path)
    jsonschema.validate(form, FORM)
    ids = [element["id"] for element in form["body"] if "id" in element]
    assert len(ids) == len(set(ids))


def test_a_form_without_a_label_is_noticed() -> None:
    form = load(FORMS[0])
    del form["body"][-1]["attributes"]["label"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(form, FORM)


def test_a_bug_report_asks_for_the_doctors_output() -> None:
    body = {element.get("id"): element for element in load(GITHUB / "ISSUE_TEMPLATE" / "bug.yml")["body"]}
    assert "kitctl doctor" in body["doctor"]["attributes"]["description"]
    assert body["doctor"]["validations"]["required"]


def test_dependabot_updates_packages_actions_and_images() -> None:
    settings = load(GITHUB / "dependabot.yml")
    jsonschema.validate(settings, DEPENDABOT)
    assert {update["package-ecosystem"] for update in settings["updates"]} == {"pip", "github-actions", "docker"}


@pytest.mark.parametrize("path", sorted(GITHUB.rglob("*.*ml")) + sorted(GITHUB.glob("*.md")), ids=lambda p: p.name)
def test_documents_and_targets_that_these_files_name_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"(?:\.\./blob/main/|`)((?:docs/)?[A-Za-z]+\.md)", text):
        assert (ROOT / name).exists(), name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for targets in re.findall(r"`make ([a-z -]+)`", text):
        for target in targets.split():
            assert f"\n.PHONY: {target}\n" in makefile, target
