"""The first line of the README, from the shell of somebody who has just been given a role on a cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kitjob.names import DEFAULT_IMAGE
from tests.cluster.commands import until_status
from tests.cluster.jobs import Run
from tests.cluster.kinds.test_chart import left_in
from tests.cluster.kubectl import kubectl, until
from tests.cluster.release import Release
from tests.cluster.submit.test_refusals import kubeconfig_with

pytestmark = [pytest.mark.cluster, pytest.mark.wide, pytest.mark.timeout(1800)]

SCRIPT: Final = Path(__file__).parents[1] / "scripts" / "train.py"


@pytest.mark.usefixtures("gpus")
def test_a_new_user_takes_a_first_step(namespace: str, release: Release, tmp_path: Path) -> None:
    """With a kubeconfig, a script, and no more: the image has torch alone, and nothing was set up for the job."""
    release.team = {"roles": {"user": {"serviceAccounts": [release.account("ada")]}}}
    release.apply()
    run = shell_of_a_new_user(namespace, tmp_path)
    before = left_in(namespace)

    output = run("submit", "--nodes", "3", "--gpus-per-node", "4", "--", "train.py")
    (name,) = re.findall(r"job '(\S+)' submitted", output)
    until_status(name, namespace, lambda state: state["worldSize"] == 12 and (state["progress"]["step"] or 0) > 0)
    until(lambda: "first step of 12 ranks" in run("logs", name))
    assert re.search(r"3 of 3 up, 12 ranks", run("status", name))
    pods = Run(namespace=namespace, name=name, kind="IndexedJob").pods()
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {DEFAULT_IMAGE}
    asked = "from importlib.util import find_spec; print(find_spec('torch') is None, find_spec('kittrain') is None)"
    inside = ("exec", "-n", namespace, pods[0]["metadata"]["name"], "--", "python3", "-c", asked)
    assert kubectl(*inside).split() == ["False", "True"]
    run("delete", name, "--snapshots", "-y")
    until(lambda: left_in(namespace) == before)


class Shell:
    """Runs commands of kitctl in a folder with a script, for a user who has a kubeconfig, a home, and nothing in it."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._folder = folder
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
        self._environ = kept | {"HOME": str(folder), "KUBECONFIG": str(kubeconfig)}

    def __call__(self, *words: str) -> str:
        """Its output, stderr included; it has to succeed."""
        command = [str(Path(sys.executable).with_name("kitctl")), *words]
        done = subprocess.run(command, check=False, cwd=self._folder, env=self._environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def shell_of_a_new_user(namespace: str, folder: Path) -> Shell:
    kubectl("create", "serviceaccount", "ada", "-n", namespace)
    token = kubectl("create", "token", "ada", "-n", namespace).strip()
    (home := folder / "ada").mkdir()
    shutil.copy(SCRIPT, home)
    return Shell(home, kubeconfig_with({"token": token}, namespace, home))
