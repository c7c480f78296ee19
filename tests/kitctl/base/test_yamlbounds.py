"""Files that would take too much time or memory to read are rejected with a line number."""

from __future__ import annotations

import pytest

from kitctl.base import yamlstrict
from kitctl.base.errors import UsageError
from kitctl.base.field_type import FieldType
from kitctl.base.yamlbounds import DEPTH_LIMIT, SIZE_LIMIT
from kitctl.spec.job_spec import JobSpec

JOB = FieldType(JobSpec)
# "Billion laughs": ten lines that expand to ten billion values.
LAUGHS = "A: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{below}'] * 10)}]\n" for below, name in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGED = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join([f'*{below}'] * 10)}]}}\n"
    for below, name in zip("abcdefghi", "bcdefghij", strict=True)
)


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        yamlstrict.read(text, "job.yaml", JOB)
    return caught.value.message


@pytest.mark.parametrize("depth", [DEPTH_LIMIT + 1, 5_000, 1_000_000])
@pytest.mark.parametrize(("start", "end"), [("[", "]"), ("{a: ", "}"), ("[", "")])
def test_deep_nesting_is_rejected(depth: int, start: str, end: str) -> None:
    """PyYAML's own loaders raise RecursionError, or crash."""
    assert refused(f"args: {start * depth}{end * depth}\n") == f"job.yaml:1: nested more than {DEPTH_LIMIT} deep"


def test_deeply_nested_blocks_are_rejected() -> None:
    assert "nested more than" in refused("".join(f"{' ' * depth}a:\n" for depth in range(5000)))


@pytest.mark.parametrize(
    "text", ["env: &a\n  A: *a\n", "args: &a [*a]\n", "env: &a {<<: *a}\n", "&a\nenv: *a\n", "env: &a {? *a : 1}\n"]
)
def test_a_recursive_alias_is_rejected(text: str) -> None:
    assert refused(text).endswith("the alias a contains itself")


@pytest.mark.parametrize("text", [LAUGHS, MERGED])
def test_exponential_aliases_are_rejected(text: str) -> None:
    assert refused(text).endswith(f"more than {SIZE_LIMIT} values")


@pytest.mark.parametrize("tag", ["!!int x", "!!bool x", "!!timestamp x", '!!binary "####"', "!!set {a}", "!mine x"])
def test_tags_are_rejected(tag: str) -> None:
    assert "job.yaml:1: tags are not allowed, as in " in refused(f"resume: {tag}\n")


def test_a_large_valid_file_is_read() -> None:
    args = ", ".join(["x"] * (SIZE_LIMIT - 10))
    assert len(yamlstrict.read(f"args: [{args}]\n", "job.yaml", JOB)[0]["args"]) == SIZE_LIMIT - 10
