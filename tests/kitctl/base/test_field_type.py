from __future__ import annotations

from typing import Any

from kitctl.base.field_type import FieldType
from kitctl.spec.job_spec import JobSpec
from kitjob.sections import Toleration

JOB = FieldType(JobSpec)


def at(*keys: str) -> FieldType:
    field_type = JOB
    for key in keys:
        below = field_type.child(key)
        assert below, key
        field_type = below
    return field_type


def test_text_is_distinguished_from_numbers() -> None:
    assert at("image").is_text
    assert at("env", "ANY").is_text
    assert at("policy", "deadline").is_text, "optional text is text"
    assert at("nccl", "debug").is_text, "a literal of strings is text"
    assert not at("nodes").is_text
    assert not at("procsPerNode").is_text
    assert not at("gpusPerNode").is_text
    assert not at("resume").is_text
    assert not at("security", "networkPolicy").is_text, "it may be a boolean"


def test_sections_lists_and_mappings_are_distinguished() -> None:
    tolerations = at("scheduling", "tolerations")
    assert tolerations.items == FieldType(Toleration)
    assert at("resources", "limits").values
    assert at("policy").fields.keys() >= {"maxRestarts", "gracePeriod"}
    assert at("image").child("anything") is None


def test_every_field_has_advice_to_give() -> None:
    def leaves(field_type: FieldType) -> list[FieldType]:
        inner = [*field_type.fields.values(), *filter(None, (field_type.values, field_type.items))]
        return [field_type, *(leaf for part in inner for leaf in leaves(part))]

    silent = [field_type for field_type in leaves(JOB) if field_type.type is not Any and not field_type.hint]
    assert not silent
