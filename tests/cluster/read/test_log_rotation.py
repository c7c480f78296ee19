"""Following a job whose kubelet begins a new log file every 10 MiB: each line arrives once."""

from __future__ import annotations

import re

import pytest

from tests.cluster.commands import job, kitctl
from tests.cluster.kubectl import kubectl

SIZE = 36  # MiB, in as many seconds: a kubelet looks every 10 s, so it begins at least two files more


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_no_line_is_lost_or_repeated_when_the_log_is_rotated(namespace: str) -> None:
    without_copies = ("--nodes", "1", "--set", "snapshots.enabled=false")
    kitctl("submit", *job("talk", namespace, *without_copies), "tests/cluster/scripts/talking.py", str(SIZE))
    followed = numbers(kitctl("logs", "-f", "talk", "-n", namespace))
    assert followed == list(range(SIZE * 1024))
    kept = numbers(kubectl("logs", "-n", namespace, "-l", "app.kubernetes.io/instance=talk", "--tail=-1"))
    assert len(kept) < 20 * 1024, "of a rotated log the API server has the last file only"


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"^\[rank 0\]: line (\d+) ", text, re.MULTILINE)]
