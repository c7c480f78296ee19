"""Jobs on the test cluster: rendered by kitctl, applied by kubectl, and the files on their volume."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet

from kitctl import kinds
from kitctl.cli.main import main
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import SHARED, TRAINER_IMAGE
from tests.cluster.kubectl import get, kubectl

# Kind -> kubectl's name for it, the condition of a completed one, and the label with a node's index.
KINDS: Final = {
    "IndexedJob": ("job.batch", "Complete", "batch.kubernetes.io/job-completion-index"),
    "TrainJob": ("trainjob.trainer.kubeflow.org", "Complete", "batch.kubernetes.io/job-completion-index"),
    "JobSet": ("jobset.jobset.x-k8s.io", "Completed", "batch.kubernetes.io/job-completion-index"),
    "PyTorchJob": ("pytorchjob.kubeflow.org", "Succeeded", "training.kubeflow.org/replica-index"),
}


SCALABLE: Final = [kind for kind in KINDS if not kinds.KINDS[kind].fixed_size]
FIXED: Final = [kind for kind in KINDS if kinds.KINDS[kind].fixed_size]


def often(*these: str) -> list[ParameterSet]:
    """Parameters for all kinds: these in each test run, the others in long runs."""
    return [pytest.param(one, marks=() if one in these else pytest.mark.long) for one in KINDS]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A submitted job."""

    namespace: str
    name: str
    kind: str

    def pods(self, index: int | None = None) -> list[dict[str, Any]]:
        """Its pods, or those of node ``index``, current and past."""
        label = KINDS[self.kind][2]
        selector = f"app.kubernetes.io/instance={self.name}"
        selector += "" if index is None else f",{label}={index}"
        found: list[dict[str, Any]] = get(self.namespace, "pods", "-l", selector)["items"]
        return found

    def wait(self, seconds: int = 400) -> None:
        """Wait until it completes.

        Raises:
            AssertionError: it did not within ``seconds``; shows its pods and the ends of their logs.
        """
        resource, condition, _ = KINDS[self.kind]
        try:
            kubectl(
                *("wait", "-n", self.namespace, f"{resource}/{self.name}"),
                *(f"--for=condition={condition}", f"--timeout={seconds}s"),
            )
        except AssertionError as error:
            error.add_note(kubectl("get", "pods", "-n", self.namespace, "-o", "wide"))
            error.add_note(self.logs("--tail=20"))
            raise

    def logs(self, *options: str) -> str:
        """The output of all its pods, pod by pod."""
        instance = f"app.kubernetes.io/instance={self.name}"
        return kubectl("logs", "-n", self.namespace, "-l", instance, "--prefix", *(options or ("--tail=-1",)))

    def report(self) -> dict[str, Any]:
        """The report of rank 0's agent; empty before the first."""
        data = get(self.namespace, "configmap", f"{self.name}-status").get("data", {})
        report: dict[str, Any] = json.loads(data.get("report", "{}"))
        return report

    @property
    def folder(self) -> Path:
        """The folder of its claim for snapshots on this machine."""
        (folder,) = SHARED.glob(f"pvc-*_{self.namespace}_{self.name}-snapshots")
        return folder

    def step(self) -> int:
        """The latest step that ``toy --record /snapshots/record`` recorded."""
        return max((step["step"] for step in self._steps()), default=0)

    def generation(self) -> int:
        """The number of its ranks' generations that took a step."""
        return max((step["generation"] for step in self._steps()), default=0)

    def _steps(self) -> Iterator[dict[str, Any]]:
        for path in SHARED.glob(f"pvc-*_{self.namespace}_{self.name}-snapshots/record/rank-*.jsonl"):
            whole_lines, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
            yield from map(json.loads, whole_lines.splitlines())


def submit(namespace: str, kind: str, *arguments: str, name: str = "run") -> Run:
    """Render a job with kitctl and apply it."""
    kubectl("apply", "--server-side", "-f", "-", given=rendered(namespace, kind, *arguments, name=name))
    return Run(namespace=namespace, name=name, kind=kind)


def rendered(namespace: str, kind: str, *arguments: str, name: str) -> str:
    """A job's objects as JSON."""
    options = ("--name", name, "--namespace", namespace, "--kind", kind, "--image", pushed(TRAINER_IMAGE))
    with redirect_stdout(io.StringIO()) as output:
        assert main(["render", "-o", "json", *options, *arguments]) == 0
    return output.getvalue()
