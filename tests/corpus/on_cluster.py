"""A place for a situation on the test cluster: a namespace of its own, with what the situation needs."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import KUBECONFIG, SHORT_COMMANDS, TRAINER_IMAGE
from tests.cluster.kind.steps import works
from tests.cluster.kubectl import kubectl
from tests.corpus.situation import Situation


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a situation is made on the cluster.

    Attributes:
        namespace: its own.
        options: of submit.
        kubeconfig: of whom submits.
    """

    namespace: str
    options: tuple[str, ...]
    kubeconfig: Path

    def shell(self, commands: str) -> None:
        """Run them, whatever comes of it: what is not so is seen in the end."""
        subprocess.run(_filled(commands, self.namespace), shell=True, check=False, env=SHORT_COMMANDS)


def answers() -> bool:
    """Whether the test cluster is up."""
    return KUBECONFIG.exists() and works("kubectl", "get", "--raw", "/readyz")


@contextmanager
def place(one: Situation, folder: Path) -> Iterator[Place]:
    """Prepare it, and remove all of it afterwards."""
    namespace = f"corpus-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", namespace)
    prepared = Place(namespace=namespace, options=_options(one, namespace, folder), kubeconfig=KUBECONFIG)
    try:
        if one.objects:
            kubectl("apply", "-n", namespace, "-f", "-", given=_filled(one.objects, namespace))
        prepared.shell(one.prepare)
        yield Place(namespace=namespace, options=prepared.options, kubeconfig=_account(one, namespace, folder))
    finally:
        prepared.shell(one.after)
        kubectl("delete", "namespace", namespace, "--wait=false")


def _options(one: Situation, namespace: str, folder: Path) -> tuple[str, ...]:
    given = tuple(_filled(option, namespace) for option in one.options)
    image = () if "--image" in given else ("--image", pushed(TRAINER_IMAGE))
    if not one.spec:
        return (*image, *given)
    (folder / "job.yaml").write_text(_filled(one.spec, namespace))
    return ("-f", "job.yaml", *image, *given)


def _filled(text: str, namespace: str) -> str:
    return text.replace("NAMESPACE", namespace).replace("IMAGE", pushed(TRAINER_IMAGE))


def _account(one: Situation, namespace: str, folder: Path) -> Path:
    """The kubeconfig of the situation's service account, or the administrator's."""
    if not one.account:
        return KUBECONFIG
    token = kubectl("create", "token", "-n", namespace, one.account).strip()
    config = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path
