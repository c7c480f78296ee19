"""The times of a rendezvous, as the job's file and torchrun name them."""

from __future__ import annotations

import pytest

from kittrain.rendezvous.settings import Knobs
from kittrain.variables import EnvError


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5", ""])
def test_times_are_positive_whole_seconds(text: str) -> None:
    with pytest.raises(EnvError, match="join_timeout"):
        Knobs.of({"join_timeout": text})


def test_keys_of_torchruns_own_are_left_to_it() -> None:
    assert Knobs.of({"is_host": "true", "last_call_timeout": "9"}) == Knobs(last_call_timeout=9)
