"""A failed job reports its cause, also after its pods are deleted."""

from __future__ import annotations

import re

import pytest

from tests.cluster.commands import job, kitctl, until_status
from tests.cluster.kubectl import kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_a_job_that_ran_out_of_memory_reports_it_and_its_log_outlives_its_pods(namespace: str) -> None:
    """With older kubelets only the rank is killed, and its agent reports; newer ones kill the whole container."""
    limits = ("--max-restarts", "0", "--set", "policy.backoffLimit=0", "--set", "resources.limits.memory=1Gi")
    kitctl("submit", *job("greedy", namespace, *limits), "tests/cluster/scripts/greedy.py")
    state = until_status("greedy", namespace, lambda state: state["phase"] == "Failed")
    killed = r"killed by SIGKILL: out of memory: the limit is 1\.0 GiB|OOMKilled \(exit code 137, the limit is 1Gi\)"
    assert re.search(killed, state["reason"])
    assert "resources.limits.memory" in state["failure"]["fix"]
    output = kitctl("wait", "greedy", "-n", namespace, exit_code=100)
    assert re.search(killed, output)
    assert "fix: raise resources.limits.memory" in output
    assert re.search(killed, kitctl("doctor", "-n", namespace, "greedy", exit_code=1))

    before = kitctl("logs", "greedy", "-n", namespace).splitlines()
    assert "[rank 0]: taking all the memory there is" in before
    kubectl("delete", "pods", "-n", namespace, "-l", "app.kubernetes.io/instance=greedy", "--wait=true")
    for options in ((), ("-f",)):
        after = kitctl("logs", "greedy", "-n", namespace, *options).splitlines()
        assert [line for line in after if line.startswith("[")] == [line for line in before if line.startswith("[")]
        assert [line for line in after if "a helper pod reads the copies on claim greedy-snapshots" in line]
