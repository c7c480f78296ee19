from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kitctl.base import yamlstrict
from kitctl.base.errors import UsageError
from kitctl.base.field_type import FieldType
from kitctl.spec.job_spec import JobSpec

JOB = FieldType(JobSpec)

# Scalars that YAML 1.1 (kubectl, Helm, PyYAML) or YAML 1.2 does not read as text.
AMBIGUOUS = [
    *("yes", "No", "ON", "off", "y", "N", "true", "False", "null", "Null", "~", ""),
    *("3", "+3", "-3", "0", "0644", "08", "0o17", "0x1F", "0b11", "1_000", "12:30:45", "2:4", "190:20:30.15"),
    *(
        "1e3",
        "1e-3",
        "3E-4",
        "1.",
        ".5",
        "+.5e1",
        "6.022_1",
        ".inf",
        "-.INF",
        ".NaN",
        "2001-12-14",
        "2001-12-14t21:59:43.10-05:00",
    ),
]
PLAIN = [
    "train.py",
    "10Gi",
    "500m",
    "a:b",
    "1h30m",
    "5d",
    "v1.2.3",
    "1.2.3",
    "e3",
    "nope",
    "yesterday",
    "0x",
    "--lr",
    "1,2",
]


def problems(text: str) -> list[str]:
    return [str(problem) for problem in yamlstrict.read(text, "job.yaml", JOB)[1]]


@pytest.mark.parametrize("scalar", AMBIGUOUS)
def test_an_unquoted_scalar_that_some_reader_does_not_read_as_text_is_rejected(scalar: str) -> None:
    (problem,) = problems(f"env:\n  A: {scalar}\n")
    assert problem.startswith("env.A: ")
    assert "(line 2)" in problem
    assert f"quote it: {json.dumps(scalar)}" in problem


@pytest.mark.parametrize("scalar", AMBIGUOUS)
def test_the_same_scalar_quoted_is_text(scalar: str) -> None:
    tree, wrong = yamlstrict.read(f"env:\n  A: '{scalar}'\nargs: [\"{scalar}\"]\n", "job.yaml", JOB)
    assert not wrong
    assert tree == {"env": {"A": scalar}, "args": [scalar]}


@pytest.mark.parametrize("scalar", PLAIN)
def test_unambiguous_text_needs_no_quotes(scalar: str) -> None:
    tree, wrong = yamlstrict.read(f"env:\n  A: {scalar}\n", "job.yaml", JOB)
    assert not wrong
    assert tree == {"env": {"A": scalar}}


def test_keys_of_user_defined_mappings_are_text_too() -> None:
    (problem,) = problems('env:\n  yes: "1"\n')
    assert problem == 'env.yes: yes (line 2) is ambiguous in YAML; fix: quote it: "yes"'


def test_an_elastic_size_has_to_be_quoted() -> None:
    assert problems("nodes: 2:4\n") == ['nodes: 2:4 (line 1) is ambiguous in YAML; fix: quote it: "2:4"']
    assert yamlstrict.read('nodes: "2:4"\n', "job.yaml", JOB) == ({"nodes": "2:4"}, [])
    assert yamlstrict.read("nodes: 3\n", "job.yaml", JOB) == ({"nodes": 3}, [])


def test_a_number_that_readers_read_differently_is_rejected() -> None:
    (problem,) = problems("policy:\n  maxRestarts: 010\n")
    assert problem.startswith("policy.maxRestarts: 010 (line 2) is an ambiguous number in YAML")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("require", "require")])
def test_a_word_or_a_truth_value(text: str, value: object) -> None:
    parsed = yamlstrict.read(f"security:\n  networkPolicy: {text}\n", "job.yaml", JOB)
    assert parsed == ({"security": {"networkPolicy": value}}, [])
    assert problems("security:\n  networkPolicy: yes\n"), "some readers read it as true"


def test_null_is_allowed_where_a_field_may_be_absent() -> None:
    assert yamlstrict.read("policy:\n  deadline: null\n", "job.yaml", JOB) == ({"policy": {"deadline": None}}, [])


def test_unknown_keys_are_reported_together_with_suggestions() -> None:
    assert problems("polcy: {}\npolicy:\n  maxRestart: 1\nvolumes:\n  - mountpath: /x\n") == [
        "polcy: unknown key (line 1); fix: did you mean policy?",
        "policy.maxRestart: unknown key (line 3); fix: did you mean maxRestarts?",
        "volumes[0].mountpath: unknown key (line 5); fix: did you mean mountPath?",
    ]


def test_anchors_and_merge_keys_are_followed() -> None:
    text = (
        'env: &common\n  A: "1"\nsecrets: {}\nresources:\n  requests: &amounts {cpu: "4"}\n  limits: {<<: *amounts}\n'
    )
    tree, wrong = yamlstrict.read(text, "job.yaml", JOB)
    assert not wrong
    assert tree["resources"]["limits"] == {"cpu": "4"}
    assert problems("resources:\n  requests: &a {cpu: 4}\n  limits: {<<: *a}\n") != []


def test_scalars_of_a_merged_mapping_are_checked_in_a_list_too() -> None:
    (problem,) = problems("env: {<<: [{A: 1e3}]}\n")
    assert problem.startswith("env.A: 1e3 (line 1) is ambiguous in YAML")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: 2\nnodes: 3\n", "job.yaml:2: duplicate key nodes"),
        ("env:\n  A: b\n  A: c\n", "job.yaml:3: duplicate key A"),
        ("a: [1\nb: 2\n", "job.yaml:2: "),
        ("nodes: {{ nodes }}\n", "job.yaml:1: found unhashable key"),
        ("\tnodes: 3\n", "job.yaml:1: found character"),
        ("just text\n", "job.yaml: not a mapping"),
        ("- a\n- b\n", "job.yaml: not a mapping"),
        ("", "job.yaml: not a mapping"),
        ("nodes: 3\n---\nnodes: 4\n", "job.yaml:2: but found another document"),
        ("nodes: \x00\n", "job.yaml"),
        ("fromScratch: 2001-99-99\n", "job.yaml: month must be in 1..12"),
        ("env: {? {a: b} : c}\n", "job.yaml:1: found unhashable key"),
        ('{"args": ["\\ud83d"]}', "job.yaml:1: found invalid Unicode character escape code"),
        ("policy: &a\n  policy: *a\n", "job.yaml:2: the alias a contains itself"),
    ],
)
def test_a_job_file_that_is_not_a_mapping_is_rejected_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        yamlstrict.read(text, "job.yaml", JOB)
    assert caught.value.message.startswith(message)
    assert caught.value.fix


@pytest.mark.parametrize(
    "written",
    [
        r'{"args": ["\ud83d\ude00", "\uD83D\uDE00", "\\ud83d\\ude00", "\\\ud83d\ude00"]}',
        '{\n\t"args": ["😀", "😀", "\\\\ud83d\\\\ude00", "\\\\😀"]\n}',
    ],
)
def test_json_is_parsed_as_json(written: str) -> None:
    tree, wrong = yamlstrict.read(written, "job.json", JOB)
    assert not wrong
    assert tree == json.loads(written) == {"args": ["😀", "😀", r"\ud83d\ude00", "\\😀"]}


def test_text_that_is_not_json_keeps_its_backslashes() -> None:
    assert yamlstrict.read(r"args: ['\ud83d\ude00']", "job.yaml", JOB)[0] == {"args": [r"\ud83d\ude00"]}


def test_a_number_with_too_many_digits_is_rejected() -> None:
    (problem,) = problems(f"nodes: {'9' * 5000}\n")
    assert "is ambiguous in YAML" in problem


def test_duplicate_keys_are_rejected() -> None:
    with pytest.raises(yaml.YAMLError, match="duplicate key"):
        yamlstrict.parse("a:\n  b: 1\n  b: 1\n")
    assert yamlstrict.parse("---\n{}\n---\n# nothing\n---\na: 1\n") == [{}, {"a": 1}]


@settings(max_examples=50)
@given(
    st.recursive(
        st.text(st.characters(codec="utf-8")) | st.integers() | st.booleans() | st.none(),
        lambda parts: st.lists(parts) | st.dictionaries(st.text(st.characters(codec="utf-8")), parts),
    )
)
def test_any_value_survives_a_round_trip(value: object) -> None:
    assert list(yaml.safe_load_all(yamlstrict.write([{"value": value}]))) == [{"value": value}]


@given(st.text(st.characters(codec="utf-8")))
def test_a_quoted_value_is_yaml(text: str) -> None:
    assert yaml.safe_load(f"a: {yamlstrict.quote(text)}") == {"a": text}
