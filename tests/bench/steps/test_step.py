"""A step of the trainer's loops launches little besides bare DDP's work: on a GPU, each launch takes microseconds."""

from __future__ import annotations

import pytest

from bench.steps import step


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_step_launches_few_operations_besides_bare_ddp() -> None:
    counts = step.measure(ranks=step.RANKS, BENCH_BLOCKS="0")["operations"]
    total = {loop: sum(counts[loop].values()) for loop in step.LOOPS}
    assert total["bare"] > 20, "the profiler sees the backward pass, too"
    assert total["fit"] <= total["bare"] + 2, counts
    assert total["run"] <= total["bare"] + 8, counts
    assert counts["fit"]["c10d::allreduce_"] == counts["bare"]["c10d::allreduce_"], "messages ride on the gradients"
