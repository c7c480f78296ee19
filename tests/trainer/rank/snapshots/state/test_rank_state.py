"""Random numbers of a rank that goes on in another round."""

from __future__ import annotations

import pytest
import torch

from kittrain.rank.snapshots.state.rank_state import RankState


@pytest.mark.parametrize(
    ("alike", "separate", "equal"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_ranks_that_were_seeded_alike_stay_so_unless_they_are_to_differ(
    *, alike: bool, separate: bool, equal: bool
) -> None:
    seeds = []
    for rank in range(2):
        RankState(rank, separate_streams=separate).outlive(3, 7, alike=alike)
        seeds.append(torch.initial_seed())
    assert (seeds[0] == seeds[1]) == equal


def test_a_script_that_seeds_in_each_round_draws_other_numbers_there() -> None:
    drawn = []
    for step in (7, 8):
        state = RankState(0, separate_streams=False)
        state.outlive(3, step)
        torch.manual_seed(5)
        state.go_on_seeded(step)
        drawn.append(torch.rand(()).item())
    torch.manual_seed(5)
    assert len({*drawn, torch.rand(()).item()}) == 3
