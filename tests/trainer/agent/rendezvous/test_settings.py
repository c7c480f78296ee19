"""Parsing torchrun's rendezvous configuration."""

from __future__ import annotations

import pytest

from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.variables import EnvError


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5", ""])
def test_timeouts_are_positive_whole_seconds(text: str) -> None:
    with pytest.raises(EnvError, match="join_timeout"):
        RendezvousSettings.from_conf({"join_timeout": text})


def test_other_keys_are_ignored() -> None:
    assert RendezvousSettings.from_conf({"is_host": "true", "last_call_timeout": "9"}) == RendezvousSettings(
        last_call_timeout=9
    )
