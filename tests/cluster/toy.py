"""Jobs that are disturbed while they train, and must still count each sample once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from kittrain.rank.world.order import Order
from tests.cluster.jobs import Run, submit
from tests.cluster.kubectl import kubectl, until
from tests.exact import assert_each_sample_counts_once

ORDER: Final = Order(samples=1024, batch=64, seed=0)
EPOCHS: Final = 12  # long enough to be disturbed three times
BEFORE_THE_END: Final = EPOCHS * ORDER.samples // ORDER.batch // 2  # steps
DISTURBED: Final = "disturbed"  # the file on a job's claim that says that it may end


def submit_toy(
    namespace: str, kind: str, *options: str, name: str = "run", epochs: int = EPOCHS, more: Iterable[str] = ()
) -> Run:
    """A job that takes ten steps per second and records them; ``more`` are arguments of the workload."""
    workload = ("-m", "kittrain.workloads.toy", str(epochs), "1", "--step-time", "0.1", "--record", "/snapshots/record")
    data = ("--samples", str(ORDER.samples), "--batch_size", str(ORDER.batch))
    return submit(namespace, kind, *options, *workload, *data, *more, name=name)


def submit_on_three_nodes(namespace: str, kinds: Iterable[str], *options: str) -> list[Run]:
    """A job of each of these kinds on the same three nodes, once all have trained for a while.

    None ends before ``may_end``, however long it takes to disturb it.
    """
    options = ("--nodes", "3", "--set", "scheduling.spread=require", *options)
    slow = ("--slow-from", str(BEFORE_THE_END), f"/snapshots/{DISTURBED}")
    # Unique names: other tests use the same nodes.
    runs = [submit_toy(namespace, kind, *options, name=f"{kind.lower()}-{namespace}", more=slow) for kind in kinds]
    for run in runs:
        until(partial(has_trained, run, steps=20), seconds=300)
    return runs


@contextmanager
def all_recover(*runs: Run) -> Iterator[None]:
    """The code within ends the ranks of each of these jobs, and all of them recover."""
    after = [run.generation() + 1 for run in runs]
    yield
    for run, generation in zip(runs, after, strict=True):
        try:
            until(partial(has_trained, run, generation=generation), seconds=300)
        except AssertionError as error:
            error.add_note(kubectl("get", "pods", "-n", run.namespace, "-o", "wide"))
            error.add_note(run.logs("--tail=20"))
            raise


def has_trained(run: Run, *, generation: int = 1, steps: int = 1) -> bool:
    """Whether this generation of its ranks has started, and this many steps were taken."""
    return run.generation() >= generation and run.step() >= steps


def may_end(run: Run) -> None:
    """A job of ``submit_on_three_nodes`` was disturbed, and takes its last steps."""
    (run.folder / DISTURBED).touch()


def assert_complete_and_exact(run: Run, *, epochs: int = EPOCHS) -> None:
    """Wait until it completes, and check that it counted each sample once."""
    run.wait()
    assert_exact(run, epochs=epochs)


def assert_exact(run: Run, *, epochs: int = EPOCHS) -> None:
    """Check that it counted each sample once."""
    assert_each_sample_counts_once(run.folder, run.folder / "record", ORDER, epochs=epochs)
