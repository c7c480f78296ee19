"""The options of commands about snapshots: the job whose snapshots they are, which may be deleted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kitctl.cli.command import option
from kitctl.cli.target_options import named_job, object_name

if TYPE_CHECKING:
    from kitctl.api.job import Job

F = TypeVar("F", bound=Callable[..., Any])


def snapshot_client(function: F) -> F:
    """``NAME``, ``--claim``, ``--image``, ``-n`` and the target's options: the command gets them as ``client``."""

    @functools.wraps(function)
    def command(*, job: Job, claim: str, image: str, **rest: Any) -> Any:
        return function(client=job.snapshots(claim=claim, image=image), **rest)

    decorated: Any = named_job(_claim(_image(command)))
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
