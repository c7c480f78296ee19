"""Which hub a node finds, of real ones in this process."""

from __future__ import annotations

import time

import pytest

from kittrain.agent.rendezvous.finding import Finder, LastRound
from kittrain.agent.rendezvous.settings import RendezvousSettings
from tests.trainer.agent.rendezvous.hub_clients import KEY, HubThread

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize("astray", [True, False])
def test_a_node_that_went_astray_meets_those_that_were_in_no_round(*, astray: bool) -> None:
    """They know the well-known address only: two of three were lost without a word, and replaced."""
    with HubThread() as own, HubThread() as well_known:
        stands_by = f"127.0.0.1:{own.address[1]}"
        last = LastRound(
            successors=[(0, NOBODY), (1, stands_by), (2, NOBODY)], address=NOBODY, closed=False, astray=astray
        )
        finder = Finder(well_known.address, KEY, settings=RendezvousSettings(), last=last, nodes=3)
        found = finder.find(deadline=time.monotonic() + 60, waiting=lambda _: None)
        found.connection.close()
    assert found.address == (f"127.0.0.1:{well_known.address[1]}" if astray else stands_by)
