"""A release of the platform chart for one namespace, and people who have no rights but those that it gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.charts.helm import PLATFORM, helm
from tests.cluster.commands import kitctl
from tests.cluster.kubectl import Object, kubectl
from tests.cluster.platform.test_permissions import Kit
from tests.cluster.submit.test_refusals import kubeconfig_with

CLAIM: Final = "kitctl-shared"
FORBIDDEN: Final = "is forbidden: User"


@dataclass
class Release:
    """A release of the chart with names of its own, for one namespace."""

    namespace: str
    folder: Path
    team: Object = field(default_factory=dict)

    def apply(self, **values: Any) -> str:
        """Install or upgrade it, with what ``team`` says of its namespace; returns what helm says."""
        own = {"namePrefix": self.namespace, "namespaces": {self.namespace: self.team}}
        given = own | {"trainingRuntimes": {"enabled": False}} | values
        return self._helm("upgrade", "--install", "kit", str(PLATFORM), "-f", "-", given=given)

    def uninstall(self) -> str:
        """Uninstall it, if it is there."""
        return self._helm("uninstall", "kit", "--ignore-not-found")

    def _helm(self, *words: str, given: Object | None = None) -> str:
        done = helm(*words, "-n", self.namespace, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def person(self, name: str) -> Kit:
        """``kitctl`` for a ServiceAccount of the namespace, which has no rights by itself."""
        kubectl("create", "serviceaccount", name, "-n", self.namespace)
        token = kubectl("create", "token", name, "-n", self.namespace).strip()
        (home := self.folder / name).mkdir()
        return partial(kitctl, kubeconfig=kubeconfig_with({"token": token}, self.namespace, home))

    def kubectl_as(self, name: str, *words: str) -> str:
        """Output of kubectl for a person of this namespace."""
        return kubectl(*words, f"--as=system:serviceaccount:{self.namespace}:{name}", *self._in(words))

    def refused(self, name: str, *words: str) -> str:
        """The message for what a person may not do with kubectl."""
        with pytest.raises(AssertionError) as caught:
            self.kubectl_as(name, *words)
        return str(caught.value)

    def _in(self, words: Sequence[str]) -> list[str]:
        return [] if "-n" in words else ["-n", self.namespace]

    def account(self, name: str) -> str:
        """A ServiceAccount as the chart's values name it."""
        return f"{self.namespace}/{name}"
