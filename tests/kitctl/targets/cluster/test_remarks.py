from __future__ import annotations

from tests.kitctl.targets.cluster.clients import Kit


def test_possible_credentials_are_a_warning_before_they_are_stored(kit: Kit) -> None:
    output = kit("submit", "--name", "run", "-e", "HF_TOKEN=mine", "-e", "LR=1", "-o", "yaml")
    assert output.count("warning: ") == 1
    assert "env.HF_TOKEN looks like a credential" in output
    assert "--secret HF_TOKEN=SECRET/KEY" in output
    assert "warning: " not in kit("submit", "--name", "other", "--secret", "HF_TOKEN=hub/token")


def test_what_a_job_asks_for_in_vain_is_told(kit: Kit) -> None:
    words = ("--set", "policy.survivors=live", "--no-checks", "-o", "yaml")
    told = "warning: policy.survivors: live has no effect"
    assert told in kit("submit", "--name", "run", "--gpus-per-node", "1", *words)
    assert told not in kit("submit", "--name", "other", *words)
