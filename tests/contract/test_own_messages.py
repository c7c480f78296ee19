"""The rules of ``kitctl why`` about messages of kitctl and kittrain: these are still said in those words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kitctl.state.why.groups import GROUPS
from kitctl.state.why.losses import LOSSES
from kitctl.state.why.rule import Rule
from kitctl.state.why.snapshots import SNAPSHOTS
from kitctl.state.why.starts import STARTS

ROOT = Path(__file__).parents[2]
RULES = Path("kitctl/state/why")
REASONS = re.compile(r"(Preemption|Eviction|Deletion)By\w+")  # Kubernetes', of a pod's DisruptionTarget condition
OWN = [
    rule for family in (GROUPS, LOSSES, SNAPSHOTS, STARTS) for rule in family.rules if not REASONS.match(rule.pattern)
]
LITERAL = re.compile(r"[\w ',:-]+")


@cache
def said() -> str:
    """All texts of both packages but for the rules', with a blank for each value in them."""
    files = [
        path for folder in ("kitctl", "trainer/kittrain", "trainer/kitjob") for path in (ROOT / folder).rglob("*.py")
    ]
    rules = ROOT / RULES
    return "\n".join(text for path in files if rules not in path.parents for text in texts(path))


def texts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else " " for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def words(rule: Rule) -> str:
    """The longest part of a pattern that stands for itself."""
    plain = re.sub(r"\(\?[:!=].*?\)|\\[a-zA-Z][*+]?|\[[^]]*\][*+?]?|\.[*+]\??|\w\?", "\0", rule.pattern)
    found: list[str] = LITERAL.findall(plain.replace("\\", ""))
    return max(found, key=len).strip(" :,")


@pytest.mark.parametrize("rule", OWN, ids=words)
def test_a_message_is_said_in_these_words(rule: Rule) -> None:
    assert len(words(rule)) >= 8
    assert words(rule) in said()
