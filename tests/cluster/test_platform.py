"""The platform chart on a cluster: its roles, its claim and its queues work, and jobs outlive a release of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.charts.helm import PLATFORM, helm
from tests.cluster.commands import job, kitctl, status, until_status
from tests.cluster.kind.settings import SHARED
from tests.cluster.kubectl import Object, get, kubectl
from tests.cluster.test_permissions import Kit
from tests.cluster.test_refusals import kubeconfig_with

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CLAIM: Final = "kitctl-shared"
FORBIDDEN: Final = "is forbidden: User"
# A script that goes on once the test makes a file in the job's folder on the claim.
WAITS: Final = """
import os, pathlib, time
while not pathlib.Path(os.environ["KIT_SNAPSHOT_DIR"], "go").exists():
    time.sleep(0.2)
print("went on")
"""


@dataclass
class Release:
    """A release of the chart with names of its own, for one namespace."""

    namespace: str
    folder: Path
    team: Object = field(default_factory=dict)

    def apply(self, **values: Any) -> str:
        """Install or upgrade it, with what ``team`` says of its namespace; returns what helm says."""
        given = {"namePrefix": self.namespace, "trainingRuntimes": {"enabled": False}, **values}
        return self._helm("upgrade", "--install", str(PLATFORM), given | {"namespaces": {self.namespace: self.team}})

    def uninstall(self) -> str:
        return self._helm("uninstall", "--ignore-not-found")

    def _helm(self, *command: Any) -> str:
        *words, last = command
        given = [last] if isinstance(last, str) else ["-f", "-"]
        done = helm(words[0], "kit", *words[1:], *given, "-n", self.namespace, given=last)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def person(self, name: str) -> Kit:
        """``kitctl`` for a ServiceAccount of the namespace, which has no rights by itself."""
        kubectl("create", "serviceaccount", name, "-n", self.namespace)
        token = kubectl("create", "token", name, "-n", self.namespace).strip()
        (home := self.folder / name).mkdir()
        return partial(kitctl, kubeconfig=kubeconfig_with({"token": token}, self.namespace, home))

    def account(self, name: str) -> str:
        return f"{self.namespace}/{name}"


@pytest.fixture
def release(namespace: str, tmp_path: Path) -> Iterator[Release]:
    made = Release(namespace, tmp_path)
    yield made
    made.uninstall()


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The script, in the working folder."""
    (tmp_path / "waits.py").write_text(WAITS)
    monkeypatch.chdir(tmp_path)
    return "waits.py"


def goes_on(namespace: str, name: str) -> None:
    """Let the script of a job on the shared claim end."""
    (folder,) = SHARED.glob(f"pvc-*_{namespace}_{CLAIM}")
    (folder / name / "go").touch()


def test_a_users_job_outlives_the_release_that_gave_the_rights(namespace: str, release: Release, waits: str) -> None:
    user, second = release.person("user"), release.person("second")
    release.team = {"sharedClaim": True, "roles": {"user": {"serviceAccounts": [release.account("user")]}}}
    assert f"kitctl submit --claim {CLAIM} -n {namespace}" in release.apply(sharedClaim={"size": "1Gi"})
    assert "you may not" not in user("submit", *job("run", namespace, "--claim", CLAIM), "--", waits)
    until_status("run", namespace, lambda state: state["worldSize"])
    assert "Running" in user("status", "run")
    for words in (("list", "-A"), ("list", "-n", "default"), ("delete", "run", "-n", "default")):
        told = user(*words, exit_code=1)
        assert FORBIDDEN in told
        assert "fix: ask for this right, or use a namespace where you have it" in told

    assert FORBIDDEN in second("list", exit_code=1)
    release.team["roles"]["user"]["serviceAccounts"].append(release.account("second"))
    release.apply(sharedClaim={"size": "1Gi"})
    assert "run" in second("list")

    release.uninstall()
    assert FORBIDDEN in user("list", exit_code=1)
    assert status("run", namespace)["phase"] == "Running"
    goes_on(namespace, "run")
    until_status("run", namespace, lambda state: state["phase"] == "Succeeded")
    assert "went on" in kitctl("logs", "run", "-n", namespace)
    assert get(namespace, "pvc", CLAIM)["status"]["phase"] == "Bound"
