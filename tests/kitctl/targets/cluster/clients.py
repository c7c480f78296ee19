"""kitctl on the fake API server: the command line, and the target alone; and a clock that it does not wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from kitctl.api.client import Client
from kitctl.cli.main import main
from kitctl.code import trainer_package
from kitctl.code.code_tree import Sources
from kitctl.input import specfile
from kitctl.input.job_request import JobRequest
from kitctl.targets import Submission
from kitctl.targets.cluster.cluster_target import ClusterTarget
from tests.kitctl.targets.cluster.apiserver import ApiServer

SENT: Final = Sources(trainer=trainer_package.load())  # what is sent with every job


@dataclass
class Clock:
    """In place of a module's ``time``: sleeping takes no time, and passes ``step`` seconds or more.

    Attributes:
        now: seconds that have passed.
        step: see above.
        on_sleep: called after each sleep with ``now``.
    """

    step: float = 0.0
    on_sleep: Callable[[float], object] = lambda _: None
    now: float = 0.0

    def monotonic(self) -> float:
        """Seconds that have passed."""
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += max(seconds, self.step)
        self.on_sleep(self.now)


@dataclass
class Kit:
    """kitctl with a kubeconfig for one server."""

    server: ApiServer
    folder: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str, exit_code: int = 0, token: str = "token", url: str = "") -> str:
        """Run a command; returns its output, with errors and warnings."""
        path = self.server.kubeconfig(self.folder, token=token, url=url)
        code = main([words[0], "--kubeconfig", str(path), *words[1:]])
        output = self.capsys.readouterr()
        printed = output.out + output.err
        assert code == exit_code, f"kitctl {' '.join(words)}: {code}\n{printed}"
        assert "this is a bug" not in printed
        return printed

    def target(self, token: str = "token") -> ClusterTarget:
        """The target without the command line."""
        path = self.server.kubeconfig(self.folder, token=token)
        found = Client(target="cluster", kubeconfig=path, notify=lambda _: None).target
        assert isinstance(found, ClusterTarget)
        return found

    def submit(self, token: str = "token", *, replace: bool = False, **fields: Any) -> None:
        """Submit a job, named ``run`` by default."""
        self.target(token).submit(self.submission(replace=replace, **fields))

    def submission(self, *, replace: bool = False, checks: bool = True, **fields: Any) -> Submission:
        """The submission of a job, as the target gets it."""
        spec = specfile.build(JobRequest(flags={"name": "run", "namespace": "default"} | fields))
        return Submission(spec=spec, sources=SENT, folder=self.folder, replace=replace, checks=checks)
