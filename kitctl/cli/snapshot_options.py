"""What verbs about snapshots share: the job whose snapshots they are, and the trainer's tool that reads them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kitctl.cli.command import option
from kitctl.cli.target_options import named_job, object_name

if TYPE_CHECKING:
    from kitctl.cli.target_options import NamedJob
    from kitctl.targets import SnapshotStore, Target

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SnapshotClient:
    """Runs the trainer's snapshot tool where a job's snapshots are."""

    target: Target
    store: SnapshotStore

    def stream(self, *args: str) -> Iterator[bytes]:
        """The output of ``python -m kittrain.snapshots ARGS``."""
        return self.target.run_snapshot_tool(self.store, args)

    def query(self, kind: type[T], *args: str) -> T:
        """The same, parsed."""
        from kitctl.snapshots import parse

        return parse(b"".join(self.stream(*args)), kind)


def snapshot_client(function: F) -> F:
    """``NAME``, ``--claim``, ``--image``, ``-n`` and the target's options: the verb gets them as ``client``."""

    @functools.wraps(function)
    def verb(*, job: NamedJob, claim: str, image: str, **rest: Any) -> Any:
        from kitctl.targets import SnapshotStore

        store = SnapshotStore(namespace=job.namespace, name=job.name, claim=claim, image=image)
        return function(client=SnapshotClient(target=job.target, store=store), **rest)

    decorated: Any = named_job(_claim(_image(verb)))
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
