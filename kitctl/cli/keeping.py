"""What verbs about snapshots share: whose they are, and asking the trainer beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kitctl.cli.place import named_job, object_name

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob
    from kitctl.targets import Kept, Target

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Keeper:
    """Who can be asked about a job's snapshots."""

    target: Target
    kept: Kept

    def stream(self, *words: str) -> Iterator[bytes]:
        """What ``kittrain.snapshots`` prints when called with these words."""
        return self.target.beside(self.kept, words)

    def answer(self, kind: type[T], *words: str) -> T:
        """The same, as a value."""
        from kitctl.snapshots import read

        return read(b"".join(self.stream(*words)), kind)


def kept_job(function: F) -> F:
    """``NAME``, ``--claim``, ``--image``, ``-n`` and the target's options: the verb gets them as ``keeper``."""

    @functools.wraps(function)
    def verb(*, job: NamedJob, claim: str, image: str, **rest: Any) -> Any:
        from kitctl.targets import Kept

        kept = Kept(namespace=job.namespace, name=job.name, claim=claim, image=image)
        return function(keeper=Keeper(target=job.target, kept=kept), **rest)

    decorated: Any = named_job(_claim(_image(verb)))
    result: F = decorated
    return result


_claim = click.option(
    "--claim", default="", metavar="NAME", callback=object_name, help="The claim that they are on, if the job is gone."
)
_image = click.option("--image", default="", metavar="IMAGE", help="The image that reads them, if the job is gone.")
