"""Any file gives either a job that Kubernetes accepts or an error with a fix, never an internal error."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kitctl import kinds
from kitctl.base.errors import KitError
from kitctl.base.field_type import FieldType
from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitjob.record import replace
from tests.kitctl.grammar import is_subdomain, violations

EVERY_OPTION = (Path(__file__).parent.parent / "cases" / "every-option.yaml").read_bytes()
TEXTS = st.sampled_from(
    [
        *("", "a", "a.b", "a-b", "-a", "a-", "A", "a_b", "a" * 63, "a" * 64, "a" * 254, "a..b", "../..", "/a", "a/b"),
        *(
            "a\n",
            "a b",
            "1",
            "x.y/z",
            "x.y/" + "z" * 64,
            "a:b",
            "\x00",
            "\x1b[2J",
            "ü",
            "😀",
            "\u202e",
            "$(A)",
            "&",
            "{{",
        ),
        *("5m", "5m\n", "0", "9" * 30, "2:4", "1:1\n", "auto", "off", "max:a", "cpu", "10Gi", "k=v", "~", "yes", "1e3"),
    ]
)
SCALARS = TEXTS | st.integers(-(10**20), 10**20) | st.sampled_from([None, True, 0, 1, 2, 3, 2.5])


def values(shape: FieldType) -> st.SearchStrategy[Any]:
    """Values for a key of a job file, valid or not."""
    if shape.fields:
        below = {key: values(part) for key, part in shape.fields.items()}
        return st.fixed_dictionaries({}, optional=below) | SCALARS
    if shape.values:
        return st.dictionaries(TEXTS, values(shape.values), max_size=2) | SCALARS
    if shape.items:
        return st.lists(values(shape.items), max_size=3) | SCALARS
    return SCALARS


def assert_fixable(error: KitError) -> None:
    """The error is the user's, and has a fix."""
    assert error.exit_code == 2
    assert error.fix or "; fix: " in error.message


def check_file(text: bytes) -> None:
    """Load a file with these bytes, and check the job or the error."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(text)
        file.flush()
        check(JobRequest(file=Path(file.name)))


def check(job: JobRequest) -> None:
    """The job is rejected with a fix, or all its objects, of each kind, have valid names."""
    spec, error = built(job)
    if error is not None:
        assert_fixable(error)
        return
    for kind in kinds.KINDS:
        try:
            objects = render.manifests(replace(spec, kind=kind, name="a"))
        except KitError as refused:  # the overlay sets a field of the template, or the kind cannot express something
            assert_fixable(refused)
            continue
        for thing in objects:
            assert is_subdomain(thing["metadata"]["name"])
            assert not [*violations(thing)]
        assert list(yaml.safe_load_all(render.to_yaml(objects))) == objects


def built(job: JobRequest) -> tuple[JobSpec, KitError | None]:
    """The job, or the error."""
    try:
        return specfile.build(job), None
    except KitError as error:
        return JobSpec(), error


@settings(max_examples=200)
@example(b"\xff\xfe")
@example(b"nodes: 2\r\n")
@example(b"a: " + b"[" * 100_000)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
def test_any_bytes(text: bytes) -> None:
    check_file(text)


@pytest.mark.wide
@settings(max_examples=50)
@example(EVERY_OPTION.index(b"name: ", EVERY_OPTION.index(b"\npod:")), 4, b"nam")  # an item without a key
@given(st.integers(0, len(EVERY_OPTION)), st.integers(0, 30), st.binary(max_size=8) | TEXTS.map(str.encode))
def test_a_good_file_with_a_flaw(start: int, length: int, flaw: bytes) -> None:
    check_file(EVERY_OPTION[:start] + flaw + EVERY_OPTION[start + length :])


@pytest.mark.wide
@settings(max_examples=200)
@given(values(FieldType(JobSpec)))
def test_any_values(tree: Any) -> None:
    check_file(json.dumps(tree).encode())


@settings(max_examples=150)
@given(st.data())
def test_any_value_of_one_field(data: st.DataObject) -> None:
    """Most trees with many values are rejected because of one of them, so each field is also tested alone."""
    section = data.draw(st.sampled_from(["", *(key for key, part in FieldType(JobSpec).fields.items() if part.fields)]))
    shape = FieldType(JobSpec).fields[section] if section else FieldType(JobSpec)
    key = data.draw(st.sampled_from([*shape.fields]))
    tree = {key: data.draw(values(shape.fields[key]))}
    check_file(json.dumps({section: tree} if section else tree).encode())


@settings(max_examples=100)
@given(st.sampled_from([*FieldType(JobSpec).fields]), TEXTS | st.text(max_size=30))
def test_any_setting(field: str, text: str) -> None:
    check(JobRequest(overrides=(f"{field}={text}",)))
