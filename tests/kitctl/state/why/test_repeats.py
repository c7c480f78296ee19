"""What a page leaves out, since it has said it."""

from __future__ import annotations

import pytest

from kitctl.state.why.repeats import says, sequel, shorter, topic, unsaid

CUT = f"{'x' * 99}…"


@pytest.mark.parametrize(
    ("reason", "cause", "left"),
    [
        ("node 1: rank 1 failed (KeyError: 'x (y)'), no restart left of 2", "rank 1: KeyError: 'x (y)'",
         "node 1: rank 1 failed, no restart left of 2"),
        (f"node 1: rank 1 failed ({CUT}), no restart left of 2", f"rank 1: {'x' * 120}",
         "node 1: rank 1 failed, no restart left of 2"),
        ("exceeded quota: small", "exceeded quota: small", ""),
        ("node 0: no torch (see (it))", "no torch (see (it))", "node 0"),
        ("node 0: the image lacks torch", "another cause", "node 0: the image lacks torch"),
        ("node 0: a very long one", "a very…one", "node 0: a very long one"),
        ("2 ranks train alone: each has a model", "2 ranks train alone", "each has a model"),
        ("2 ranks start a group of their own on a machine: it is apart", "2 ranks start a group of their own", ""),
        ("ranks wait", "", "ranks wait"),
        ("", "a cause", ""),
        ("", "", ""),
    ],
)  # fmt: skip
def test_what_a_reason_says_besides_the_cause(reason: str, cause: str, left: str) -> None:
    assert shorter(reason, cause) == left


def test_only_a_last_line_that_was_told_is_left_out() -> None:
    assert unsaid(["KeyError: 'x'", "at 1", "KeyError: 'x'"], "rank 1: KeyError: 'x'") == ["KeyError: 'x'", "at 1"]
    assert unsaid(["KeyError: 'x'", "at 1"], "rank 1: KeyError: 'x'") == ["KeyError: 'x'", "at 1"]
    assert unsaid(["at 1", "KeyError: 7", "values: n = 0"], "rank 1: KeyError: 7") == ["at 1", "values: n = 0"]
    assert unsaid(["at 1", "KeyError: 7", "values: n = 0"], "a") == ["at 1", "KeyError: 7", "values: n = 0"]
    assert unsaid([], "a") == []
    assert not says("a cause", "")
    assert not says("", "a text")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('ErrImagePull: back-off 20s "x:1"', 'ImagePullBackOff: back-off 40s "x:1"'),
        ("pod run-0-x7x9q is odd", "pod run-1-mmmmm is odd"),
        ("0/4 nodes are available", "0/5 nodes are available"),
        ("rank 1: step 30 of 10.0.0.1:29500", "rank 2: step 31 of 10.0.0.2:29500"),
    ],
)
def test_counts_pods_and_steps_of_a_pull_are_no_other_topic(one: str, other: str) -> None:
    assert topic(one, "run") == topic(other, "run")


@pytest.mark.parametrize(
    ("one", "other"),
    [("exit code 3", "exit code 4"), ("SIG9", "SIG11"), ("KeyError: a", "KeyError: b"), ("float32", "float16")],
)
def test_another_error_is_another_topic(one: str, other: str) -> None:
    assert topic(one, "run") != topic(other, "run")


@pytest.mark.parametrize(
    ("reason", "cause", "expected"),
    [
        (
            "no gradients are exchanged: each has its own model",
            "no gradients are exchanged",
            ": each has its own model",
        ),
        ("no gradients  are exchanged; see x", "no gradients are exchanged", "; see x"),
        ("no gradients are exchanged", "no gradients are exchanged", ""),
        ("node 1: no gradients are exchanged: each", "no gradients are exchanged", ""),  # the cause is in the middle
        ("no gradients are exchanged, no restart left", "no gradients are exchanged", ""),
        ("no gradients", "", ""),
    ],
)
def test_a_reason_goes_on_after_the_cause_that_it_begins_with(reason: str, cause: str, expected: str) -> None:
    assert sequel(reason, cause) == expected
