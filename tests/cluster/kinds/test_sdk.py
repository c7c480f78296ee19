"""A training function that Kubeflow's own SDK submits, to kitctl's runtime: it recovers, and its status is known."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path
from typing import Final

import pytest

from kitctl.kinds.train_job import PLAIN_RUNTIME
from tests.cluster.commands import kitctl, status, until_status
from tests.cluster.jobs import Run
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import KUBECONFIG, STATE, TRAINER_IMAGE
from tests.cluster.kinds.test_kinds import folder_of, pods_of
from tests.cluster.kubectl import kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.long, pytest.mark.timeout(1800)]

SDK: Final = "kubeflow==0.5.0"
SUBMIT: Final = Path(__file__).parents[1] / "scripts" / "sdk_job.py"


@pytest.fixture(scope="session")
def sdk() -> Path:
    """A Python that has the SDK, in an environment of its own."""
    folder = STATE / SDK.replace("==", "-")
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", SDK], check=True)
        ready.touch()
    return python


def test_a_function_recovers_and_reports(namespace: str, sdk: Path) -> None:
    command = [str(sdk), str(SUBMIT), namespace, PLAIN_RUNTIME, pushed(TRAINER_IMAGE)]
    environ = os.environ | {"KUBECONFIG": str(KUBECONFIG)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = Run(namespace=namespace, name=done.stdout.split()[-1], kind="TrainJob")
    until_status(run.name, namespace, lambda state: (state["progress"]["step"] or 0) > 15)
    assert status(run.name, namespace)["worldSize"] == 2
    (pod,) = pods_of(run, 1)
    kubectl("delete", "pod", "-n", namespace, pod["metadata"]["name"], "--wait=false")
    until_status(run.name, namespace, lambda state: state["phase"] == "Succeeded")
    logs = kitctl("logs", run.name, "-n", namespace)
    assert "resuming after step" in logs
    for rank in range(2):
        assert f"rank {rank} of 2 has taken step 100" in logs
    kept = "".join(path.read_text() for path in folder_of(run).glob("logs/node-1/*.log"))
    assert "received a stop signal" in kept, "it was drained, not killed"
