"""What is noted of the collectives that a script calls."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from kittrain.agent.hooks.steps.last_call import ENOUGH, MOST, LastCall
from kittrain.system.calls import NO_CALL, Call


class Page:
    def __init__(self) -> None:
        self.call = NO_CALL
        self.steps = 0
        self.last = LastCall(self.write, self.count, lambda: self.steps)

    def write(self, call: Call) -> None:
        self.call = call

    def count(self, number: int) -> None:
        self.call = Call(
            **{name: getattr(self.call, name) for name in ("group", "size", "name", "tensor", "root")}, number=number
        )

    @property
    def told(self) -> tuple[int, str, str, int]:
        return self.call.number, self.call.name, self.call.tensor, self.call.size


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    found = dist.group.WORLD
    assert found is not None
    yield found
    dist.destroy_process_group()


def test_the_rank_that_sends_or_receives_is_noted(group: dist.ProcessGroup) -> None:
    page = Page()
    page.last.formed(1)
    for at, kind in enumerate(("Broadcast", "Reduce", "Gather", "Scatter")):
        options = getattr(dist, f"{kind}Options")()
        options.rootRank = at
        page.last.begins(group, kind.lower(), ([torch.ones(2)], options))
        assert page.call.root == at
        options.rootRank = 7
        page.last.begins(group, kind.lower(), ([torch.ones(2)], options))
        assert page.call.root == 7, "although all else is like the call before"
    page.last.begins(group, "allreduce", ([torch.ones(2)], dist.AllreduceOptions()))
    assert page.call.root == -1


def test_calls_are_numbered_with_what_each_rank_has_to_give(group: dist.ProcessGroup) -> None:
    page = Page()
    page.last.formed(1)
    options = dist.AllreduceOptions()
    assert page.last.begins(group, "allreduce", ([torch.ones(2, 3)], options))
    assert page.told == (1, "all_reduce", "[2, 3] float32", 24)
    page.last.begins(group, "allreduce", ([torch.ones(2, 3)], options))
    assert page.told == (2, "all_reduce", "[2, 3] float32", 24)
    page.last.begins(group, "allreduce", ([torch.ones(4, dtype=torch.int64)], options))
    assert page.told == (3, "all_reduce", "[4] int64", 32)
    page.last.begins(group, "barrier", (dist.BarrierOptions(),))
    assert page.told == (4, "barrier", "", 0)
    page.last.begins(group, "allgather", ([[torch.ones(9)]], [torch.ones(9)]))
    assert page.told == (5, "all_gather", "", 0), "ranks may give tensors of any size"
    page.last.begins(group, "send", ([torch.ones(9)], 0, 0))
    assert page.call == NO_CALL, "not all ranks take part"


def test_a_new_group_counts_anew_and_smaller_ones_are_not_noted(group: dist.ProcessGroup) -> None:
    page = Page()
    page.last.formed(1)
    page.last.begins(group, "barrier", ())
    page.last.formed(1)
    assert page.call == NO_CALL
    page.last.begins(group, "barrier", ())
    assert page.told == (1, "barrier", "", 0)
    page.last.formed(2)
    assert page.last.begins(group, "barrier", ())
    assert page.call == NO_CALL


def test_a_group_that_is_destroyed_is_not_kept_since_others_may_wait_in_it() -> None:
    page = Page()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD
    assert group is not None
    page.last.formed(1)
    page.last.begins(group, "allreduce", ([torch.ones(2)], dist.AllreduceOptions()))
    gone = weakref.ref(group)
    del group
    dist.destroy_process_group()
    assert gone() is None
    assert page.told[:2] == (1, "all_reduce")


def test_many_calls_a_step_are_not_noted_any_more(group: dist.ProcessGroup) -> None:
    page = Page()
    page.last.formed(1)
    assert all(page.last.begins(group, "barrier", ()) for _ in range(MOST * ENOUGH)), "a script that takes no steps"
    page.steps = 2
    assert not [page.last.begins(group, "barrier", ()) for _ in range(ENOUGH)][-1]
    assert page.call == NO_CALL
