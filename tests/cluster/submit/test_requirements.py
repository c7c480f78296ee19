"""Packages that a job's script needs, from wheels that are sent along: installed by one pod, on the claim."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.commands import job, kitctl, status
from tests.cluster.kubectl import kubectl, until
from tests.wheels import wheel

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(800)]

SCRIPT = """
import os, sys, time
import alpha, torch
print(f"rank {os.environ['RANK']} has {alpha.VERSION} of {alpha.__file__}, torch of {torch.__file__}", flush=True)
time.sleep(float(sys.argv[1]))
"""


def submitted(namespace: str, folder: Path, *lines: str, size: int = 1, seconds: int = 0) -> str:
    (folder / "train.py").write_text(SCRIPT)
    source = f"VERSION = '1.5'\n# {os.urandom(size).hex()}\n"
    wheel(folder / "wheels", "alpha", "1.5", requires=["torch", "numpy"], files={"alpha.py": source})
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    return kitctl(
        *("submit", *job("run", namespace), "--nodes", "2", "--workdir", str(folder), "--no-index"),
        *("--requirements", str(folder / "requirements.txt"), "--find-links", str(folder / "wheels")),
        *("--", "train.py", str(seconds)),
    )


@pytest.mark.wide
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 1 << 20])
def test_one_pod_installs_and_a_replacement_finds_it(namespace: str, tmp_path: Path, size: int) -> None:
    output = submitted(namespace, tmp_path, "alpha", size=size, seconds=40)
    where = "ConfigMap run-requirements" if size == 1 else "claim run-snapshots"
    assert "requirements.txt and 1 wheel (" in output
    assert f"sent to {where}" in output
    until(lambda: kitctl("logs", "run", "-n", namespace).count("has 1.5 of /snapshots/.packages/") == 2)
    assert kitctl("logs", "run", "-n", namespace).count("requirements: alpha-1.5 installed in") == 1
    pod = next(one for one in status("run", namespace)["nodes"] if one["index"] == 1)["pod"]
    kubectl("delete", "pod", "-n", namespace, pod, "--wait=false", "--grace-period=0", "--force")
    until(lambda: "the requirements are installed already" in kitctl("logs", "run", "-n", namespace))
    kitctl("wait", "run", "-n", namespace)
    logs = kitctl("logs", "run", "-n", namespace)
    assert logs.count("rank 1 has 1.5") == 2
    assert "torch of /var/run" not in logs


@pytest.mark.wide
def test_a_failed_installation_fails_the_job_with_pips_message(namespace: str, tmp_path: Path) -> None:
    submitted(namespace, tmp_path, "alpha>=2")
    until(lambda: status("run", namespace)["phase"] == "Failed")
    assert "No matching distribution found for alpha>=2" in status("run", namespace)["reason"]
