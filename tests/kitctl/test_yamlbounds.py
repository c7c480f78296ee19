"""Files that would never be read to their end, or take everything down with them: each is refused by its line."""

from __future__ import annotations

import pytest

from kitctl import yamlstrict
from kitctl.errors import UsageError
from kitctl.field_type import FieldType
from kitctl.spec import JobSpec
from kitctl.yamlbounds import DEPTH_LIMIT, SIZE_LIMIT

JOB = FieldType(JobSpec)
# Ten times ten times ...: ten lines, ten thousand million values.
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
def test_nesting_has_an_end(depth: int, start: str, end: str) -> None:
    """PyYAML's own readers end with a RecursionError, or with the process."""
    assert refused(f"args: {start * depth}{end * depth}\n") == f"job.yaml:1: nested more than {DEPTH_LIMIT} deep"


def test_blocks_nest_no_deeper() -> None:
    assert "nested more than" in refused("".join(f"{' ' * depth}a:\n" for depth in range(5000)))


@pytest.mark.parametrize(
    "text", ["env: &a\n  A: *a\n", "args: &a [*a]\n", "env: &a {<<: *a}\n", "&a\nenv: *a\n", "env: &a {? *a : 1}\n"]
)
def test_an_alias_does_not_contain_itself(text: str) -> None:
    assert refused(text).endswith("the alias a contains itself")


@pytest.mark.parametrize("text", [LAUGHS, MERGED])
def test_aliases_of_aliases_do_not_fill_the_memory(text: str) -> None:
    assert refused(text).endswith(f"more than {SIZE_LIMIT} values")


@pytest.mark.parametrize("tag", ["!!int x", "!!bool x", "!!timestamp x", '!!binary "####"', "!!set {a}", "!mine x"])
def test_tags_are_not_allowed(tag: str) -> None:
    assert "job.yaml:1: tags are not allowed, as in " in refused(f"resume: {tag}\n")


def test_as_much_as_any_job_needs_is_read() -> None:
    args = ", ".join(["x"] * (SIZE_LIMIT - 10))
    assert len(yamlstrict.read(f"args: [{args}]\n", "job.yaml", JOB)[0]["args"]) == SIZE_LIMIT - 10
