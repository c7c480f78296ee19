"""Parsing torchrun's rendezvous configuration."""

from __future__ import annotations

import socket

import pytest

from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.job.variables import EnvError
from kittrain.system.lines import enable_keepalive


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5", ""])
def test_timeouts_are_positive_whole_seconds(text: str) -> None:
    with pytest.raises(EnvError, match="join_timeout"):
        RendezvousSettings.from_conf({"join_timeout": text})


def test_other_keys_are_ignored() -> None:
    conf = {"is_host": "true", "last_call_timeout": "9", "lost_after": "77"}
    assert RendezvousSettings.from_conf(conf) == RendezvousSettings(last_call_timeout=9)


@pytest.mark.parametrize("seconds", [0, 1, 3601, -3])
def test_a_machine_is_not_lost_at_once_nor_never(seconds: int) -> None:
    with pytest.raises(EnvError, match=r"policy.lostAfter: .* not between 2 and 3600 s"):
        RendezvousSettings.from_conf({}, lost_after=seconds)


@pytest.mark.parametrize("seconds", [2, 3, 60, 3600])
def test_the_kernel_takes_the_keep_alive_and_gives_up_later_than_an_agent_does(seconds: int) -> None:
    interval, attempts = RendezvousSettings.from_conf({}, lost_after=seconds).keep_alive
    assert interval * attempts > seconds
    with socket.socket() as connection:
        enable_keepalive(connection, interval=interval, attempts=attempts)
