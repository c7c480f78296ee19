"""Volumes that keep the images of each worker's containerd when the cluster is deleted: a gigabyte of torch each."""

from __future__ import annotations

import uuid
from typing import Final

from tests.cluster.kind.images import image_id
from tests.cluster.kind.settings import CLUSTER, NODE_IMAGE, WORKERS
from tests.cluster.kind.steps import finish, finished, read, run

IN_NODE: Final = "/var/lib/containerd"
_VOLUME: Final = f"{CLUSTER}-store-"


def folders() -> list[str]:
    """The folder of each worker's volume on this machine."""
    for number in range(WORKERS):
        run("docker", "volume", "create", f"{_VOLUME}{number}")  # no effect if it exists
    return [read("docker", "volume", "inspect", "-f", "{{.Mountpoint}}", f"{_VOLUME}{n}") for n in range(WORKERS)]


def fill() -> None:
    """Initialize each volume from the node image, unless this was done; no cluster may use them.

    The new kubelets clean up after a deleted cluster's pods, as after a power cut.
    """
    for number in range(WORKERS):
        volume = f"{_VOLUME}{number}"
        if finished(volume, _state_of(volume)):
            continue
        run("docker", "volume", "rm", "-f", volume)
        run("docker", "volume", "create", "--label", f"id={uuid.uuid4()}", volume)
        run("docker", "run", "--rm", "-v", f"{volume}:{IN_NODE}", "--entrypoint", "true", NODE_IMAGE)  # docker copies
        finish(volume, _state_of(volume))


def _state_of(volume: str) -> str:
    return image_id(NODE_IMAGE) + read("docker", "volume", "inspect", "-f", "{{.Labels.id}}", volume)


def delete() -> None:
    """Delete all of them; no cluster may use them."""
    for volume in read("docker", "volume", "ls", "-q", "-f", f"name=^{_VOLUME}").split():
        run("docker", "volume", "rm", "-f", volume)
