"""The options of commands about snapshots: the job whose snapshots they are, which may be deleted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kitctl.cli import hints
from kitctl.cli.command import option
from kitctl.cli.target_options import is_mirror, job_or_mirror, object_name

if TYPE_CHECKING:
    from kitctl.api.client import Client

F = TypeVar("F", bound=Callable[..., Any])


def snapshot_client(function: F) -> F:
    """``NAME``, ``--claim``, ``--image``, ``-n`` and the target's options: the command gets them as ``client``."""

    @functools.wraps(function)
    def command(
        *, name: str, namespace: str | None, connect: Callable[[], Client], claim: str, image: str, **rest: Any
    ) -> Any:
        if is_mirror(name):
            from kitctl.api.mirror import of_mirror

            return function(client=of_mirror(name), **rest)
        hints.about(name)
        return function(client=connect().job(name, namespace).snapshots(claim=claim, image=image), **rest)

    decorated: Any = job_or_mirror(_claim(_image(command)))
    result: F = decorated
    return result


_claim = option(
    "--claim",
    group="Snapshots",
    default="",
    default_text="the job's",
    metavar="NAME",
    callback=object_name,
    help="PVC holding the snapshots, if the job was deleted.",
)
_image = option(
    "--image",
    group="Snapshots",
    default="",
    default_text="the job's",
    metavar="IMAGE",
    help="Image that reads the snapshots, if the job was deleted.",
)
