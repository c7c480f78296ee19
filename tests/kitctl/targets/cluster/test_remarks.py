from __future__ import annotations

from tests.kitctl.targets.cluster.clients import Kit


def test_possible_credentials_are_warned_of_before_they_are_stored(kit: Kit) -> None:
    told = kit("submit", "--name", "run", "-e", "HF_TOKEN=mine", "-e", "LR=1", "-o", "yaml")
    assert told.count("warning: ") == 1
    assert "env.HF_TOKEN looks like a credential" in told
    assert "--secret HF_TOKEN=SECRET/KEY" in told
    assert "warning: " not in kit("submit", "--name", "other", "--secret", "HF_TOKEN=hub/token")
