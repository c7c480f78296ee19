"""The rules of ``kitctl why`` about messages of kitctl and kittrain: these are still said in those words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kitctl.state.why.causes.groups import GROUPS
from kitctl.state.why.causes.hangs import HANGS
from kitctl.state.why.causes.losses import LOSSES
from kitctl.state.why.causes.notes import NOTES
from kitctl.state.why.causes.snapshots import SNAPSHOTS
from kitctl.state.why.causes.starts import STARTS
from kitctl.state.why.rule import Rule

ROOT = Path(__file__).parents[2]
RULES = Path("kitctl/state/why")
OTHERS = re.compile(
    r"^(Preemption|Eviction|Deletion)By\w+"  # Kubernetes' words, of a pod's DisruptionTarget condition
    r"|^Detected mismatch between|monitoredBarrier|connectFullMesh"  # torch's, in a process group's errors
)
# Messages that are put together: the longest part of their pattern -> what is said in one place each.
PARTS = {
    "lost it, after it had printed": ("lost it", ", after it had printed: "),
    "it used": ("busy (it used ",),
    "in DDP's broadcast of buffers": ("DDP's broadcast of buffers",),
    "failed": ("has failed (", "), but its ", "exit handler", " goes on"),
    "hang": ("hang: ",),
}
OWN = [
    rule
    for family in (NOTES, GROUPS, HANGS, LOSSES, SNAPSHOTS, STARTS)
    for rule in family.rules
    if not OTHERS.search(rule.pattern)
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
    """All texts but the docstrings: one that quotes a message does not say it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    quoting = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}  # docstrings, also of fields
    for node in ast.walk(tree):
        if id(node) in quoting:
            continue
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
    longest = words(rule)
    parts = PARTS.get(longest, (longest,))
    assert longest in PARTS or len(longest) >= 8
    assert [part for part in parts if part not in said()] == []
    assert longest not in PARTS or all(part in rule.seen for part in parts)
