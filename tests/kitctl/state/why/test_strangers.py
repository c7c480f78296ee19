"""Errors of a script's own are told in their own words, whatever these mean elsewhere."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kitctl.state.why.explain import explain
from tests.kitctl.state.why.test_explain import JOB, failed
from tests.strangers import STRANGERS

RAISED = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in <module>\n    raise error\n'


@pytest.mark.parametrize("target", ["local", "kind-kitctl"])
@pytest.mark.parametrize("error", STRANGERS)
def test_a_strangers_error_has_no_fix(error: str, target: str) -> None:
    found = explain(failed(error, traceback=f"{RAISED}{error}\n", target=target), 0.0)
    assert found.cause == f"rank 1: {error}"
    assert found.fix == "see train.py:9, where it was raised"


@pytest.mark.parametrize("error", STRANGERS)
def test_nor_has_it_while_the_job_tries_again(error: str) -> None:
    job = replace(JOB, phase="Recovering", reason=f"before: node 0: rank 1 failed ({error}), restart 1 of 3")
    assert explain(job, 0.0).fix == ""
