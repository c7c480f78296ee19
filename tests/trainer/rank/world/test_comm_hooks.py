"""The states of communication hooks are saved and restored, or it is said that they are not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

from kittrain.rank.snapshots.files import tree
from kittrain.rank.world import comm_hooks
from kittrain.rank.world.comm_hooks import MAX_BYTES, HookStateError

CPU = torch.device("cpu")


def test_the_state_of_power_sgd_continues_where_it_was() -> None:
    state: Any = PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)
    state.iter, state.error_dict[0] = 7, torch.rand(5)
    state.q_memory_dict[0] = torch.rand(3, 2)
    state.rng.randint(9)
    expected = copy.deepcopy(state.rng)
    saved = tree.load(tree.dump(comm_hooks.capture(allreduce_hook, state)))
    error = state.error_dict[0].clone()
    state.error_dict[0].zero_()
    state.rng.randint(9)
    new: Any = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=5)
    comm_hooks.restore(new, saved, CPU)
    assert (new.iter, new.matrix_approximation_rank, new.start_powerSGD_iter) == (7, 1, 5), "options are the script's"
    torch.testing.assert_close(new.error_dict, {0: error}, rtol=0, atol=0)
    assert list(new.q_memory_dict) == [0]
    assert isinstance(new.rng, np.random.RandomState)
    assert new.rng.randint(1 << 30) == expected.randint(1 << 30)


def test_the_state_of_local_sgd_continues_where_it_was() -> None:
    state, new = (PostLocalSGDState(None, None, start_localSGD_iter=4) for _ in range(2))
    state.iter = 3
    comm_hooks.restore(new, comm_hooks.capture(allreduce_hook, state), CPU)
    assert new.iter == 3


def test_a_hook_without_a_state_saves_nothing() -> None:
    assert comm_hooks.capture(allreduce_hook, None) is None


def test_a_state_that_cannot_be_saved_is_named_with_the_fix() -> None:
    with pytest.raises(HookStateError, match=r"allreduce_hook, object, is not saved.*: give it .* load_state_dict"):
        comm_hooks.capture(allreduce_hook, object())


def test_a_state_that_is_too_large_is_named_with_the_fix() -> None:
    state: Any = PowerSGDState(None, start_powerSGD_iter=2)
    state.error_dict[0] = torch.empty(MAX_BYTES // 4 + 1)
    with pytest.raises(HookStateError, match=r"allreduce_hook has 16 MiB on each rank.* without error feedback"):
        comm_hooks.capture(allreduce_hook, state)
