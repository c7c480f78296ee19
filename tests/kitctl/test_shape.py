from __future__ import annotations

from kitctl.sections import Toleration
from kitctl.shape import Shape
from kitctl.spec import JobSpec

JOB = Shape(JobSpec)


def at(*keys: str) -> Shape:
    shape = JOB
    for key in keys:
        below = shape.child(key)
        assert below, key
        shape = below
    return shape


def test_text_is_told_from_what_may_be_a_number() -> None:
    assert at("image").is_text
    assert at("env", "ANY").is_text
    assert at("policy", "deadline").is_text, "optional text is text"
    assert at("nccl", "debug").is_text, "so is one of some words"
    assert not at("nodes").is_text
    assert not at("procsPerNode").is_text
    assert not at("gpusPerNode").is_text
    assert not at("resume").is_text
    assert not at("security", "networkPolicy").is_text, "it may be a truth value"


def test_sections_lists_and_mappings_are_told_apart() -> None:
    tolerations = at("scheduling", "tolerations")
    assert tolerations.items == Shape(Toleration)
    assert at("resources", "limits").values
    assert at("policy").fields.keys() >= {"maxRestarts", "gracePeriod"}
    assert at("image").child("anything") is None


def test_every_field_has_advice_to_give() -> None:
    def leaves(shape: Shape) -> list[Shape]:
        inner = [*shape.fields.values(), *filter(None, (shape.values, shape.items))]
        return [shape, *(leaf for part in inner for leaf in leaves(part))]

    silent = [shape for shape in leaves(JOB) if not shape.advice]
    assert not silent
