"""kitctl on the fake API server: the command line, and the target alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kitctl import specfile
from kitctl.cli.main import main
from kitctl.client import Client
from kitctl.code_tree import NO_SOURCES
from kitctl.job_request import JobRequest
from kitctl.targets import Submission
from kitctl.targets.cluster.cluster_target import ClusterTarget
from tests.kitctl.targets.cluster.apiserver import ApiServer


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
        return Submission(spec=spec, sources=NO_SOURCES, folder=self.folder, replace=replace, checks=checks)
