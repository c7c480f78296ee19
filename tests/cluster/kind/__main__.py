"""``python3 -m tests.cluster.kind COMMAND...``: creates and deletes the test cluster. Every command may be repeated.

up           create the cluster, or what of it is missing
controllers  install what few tests need, after `up`: JobSet, Kubeflow Trainer and Kueue
image        after `up`: build the trainer image from the repository's Dockerfile and push it, as
             localhost:5001/kitctl/trainer:<version>
pause        freeze the nodes, which compute even without pods; `resume` and `up` let them go on
down         delete the cluster, its volumes and the registry; what was built is kept
stop         stop the docker daemon that `up` started
forget       delete what was pushed and pulled; run it after `down`
"""

from __future__ import annotations

import shutil
import sys
import time
from functools import partial
from typing import Final

from tests.cluster.kind import addons, cluster, host, images, programs, stores
from tests.cluster.kind.settings import BIN, HERE, KUBECONFIG, STORAGE, TORCH_IMAGE, TRAINER_IMAGE, TRAINER_NAME
from tests.cluster.kind.steps import Steps, alone, beside, do, run, step
from tools import system_changes

CONTROL_PLANE: Final = ("kubernetes", "etcd", "coredns")  # modules


def up() -> None:
    """Create the cluster, and wait until it is ready."""
    began = time.monotonic()
    if obstacle := host.obstacle():
        sys.exit(f"no cluster: {obstacle}")
    if not system_changes.allowed(*host.planned_changes()):
        sys.exit("no cluster: changes to this machine were declined")
    BIN.mkdir(parents=True, exist_ok=True)
    do({"host packages": host.packages, "docker": host.docker})
    published = step("image registry?", images.registry_answers)
    # Programs are compiled beside what docker does, which waits for downloads and disks.
    with beside(_builds("kind", *(() if published else CONTROL_PLANE))):
        do(_base(published=published))
    with beside(_builds("helm", "training-operator")):
        do({**_cluster(published=published), **_pushes()})
    do(_addons())
    print(f"ready after {time.monotonic() - began:.0f} s\n")
    print(f"export KUBECONFIG={KUBECONFIG}\nexport PATH={BIN}:$PATH")


def controllers() -> None:
    """Install the controllers of `make test-controllers`, and wait until they are ready."""
    do(_controllers())


def _base(*, published: bool) -> Steps:
    """Images that need no program; the last is that of jobs that name none, of which the trainer's is made."""
    return {
        "debian bookworm": partial(images.debian, "bookworm", published=published),
        "registry image": images.registry,
        "debian sid": partial(images.debian, "sid", published=published),
        "torch image": images.torch_cpu,
    }


def _cluster(*, published: bool) -> Steps:
    network: Steps = {} if published else {"pod network": cluster.network}
    return {
        "node image": images.published_node if published else images.built_node,
        "registry": cluster.registry,
        "cluster": partial(cluster.create, published=published),
        **network,
        "nodes use registry": cluster.nodes_use_registry,
        "nodes read": cluster.nodes_read,
        "fake GPUs": cluster.fake_gpus,
        "storage class": addons.storage_class,
        "second domain": addons.second_domain,
        "definitions": addons.definitions,
    }


def _pushes() -> Steps:
    return {"push torch": partial(images.push, TORCH_IMAGE), "push default": images.push_default}


def _addons() -> Steps:
    return {
        "training operator image": images.training_operator,
        "training operator": addons.training_operator,
        "nodes ready": cluster.ready,
        "add-ons ready": partial(addons.ready, addons.OPERATOR),
        "platform chart": addons.platform,
    }


def _controllers() -> Steps:
    return {
        **_builds("jobset", "trainer", "kueue"),
        "controllers image": images.controllers,
        "Kueue image": images.kueue,
        "jobset": addons.jobset,
        "trainer": addons.trainer,
        "Kueue": addons.kueue,
        "controllers ready": partial(addons.ready, *addons.CONTROLLERS),
        "webhooks answer": addons.webhooks,
        "queue positions": addons.queue_positions,
    }


def _builds(*names: str) -> Steps:
    return {f"build {name}": partial(programs.build, name) for name in names}


def image() -> None:
    """Build the trainer image for the cluster, and push it."""
    repository = HERE.parents[2]
    do(
        {
            "trainer image": partial(
                run, "docker", "build", "-t", TRAINER_IMAGE, "--build-arg", f"BASE_IMAGE={TORCH_IMAGE}", repository
            ),
            "push": partial(images.push, TRAINER_IMAGE),
            "remove from nodes": partial(cluster.nodes_remove_image, TRAINER_NAME),
            "pull on nodes": partial(cluster.nodes_pull, TRAINER_IMAGE),
        }
    )
    print(TRAINER_IMAGE)


def pause() -> None:
    """Freeze the cluster."""
    do({"pause cluster": cluster.pause})


def resume() -> None:
    """Let a paused cluster go on."""
    do({"resume cluster": cluster.resume})


def down() -> None:
    """Delete the cluster."""
    do({"delete cluster": cluster.delete})


def stop() -> None:
    """Stop the docker daemon."""
    do({"stop docker": host.stop_daemon})


def forget() -> None:
    """Delete what was pushed, and what the nodes pulled."""
    do(
        {
            "delete pushed images": partial(shutil.rmtree, STORAGE, ignore_errors=True),
            "delete pulled images": stores.delete,
        }
    )


COMMANDS = {
    "up": up,
    "controllers": controllers,
    "image": image,
    "pause": pause,
    "resume": resume,
    "down": down,
    "stop": stop,
    "forget": forget,
}

if __name__ == "__main__":
    if not sys.argv[1:] or set(sys.argv[1:]) - COMMANDS.keys():
        sys.exit(__doc__)
    with alone():
        for command in sys.argv[1:]:
            COMMANDS[command]()
