"""Wherever a loop is killed, what it has saved continues after the place where it was saved: nothing is done twice."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from kittrain import Data, Drained, Run, attach
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.folder.snapshot import REPLACED, SCRATCH, read_manifest
from kittrain.rank.snapshots.proof import prove
from kittrain.rank.training.sample_order import PositionError
from tests.trainer.loops import settled
from tests.trainer.settings import job as settings

EPOCHS: Final = 3
EVERY: Final = (1, 2, 3, 4, 100)  # 4 steps an epoch


class Killed(Exception):
    """In place of a signal: nothing after it is done, not even by the run."""


class Job:
    """A script: a model with dropout, its optimizer, a scheduler, an average, and what it has seen.

    Args:
        folder: of the snapshots; None: none.
        every: steps between snapshots.
        kill_at: the event at which it is killed; 0: never.
        stop_at: the event at which it is asked to stop; 0: never.
        by_data: whether the run has the data set.
    """

    def __init__(
        self, folder: Path | None, every: int, *, kill_at: int = 0, stop_at: int = 0, by_data: bool = False
    ) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.4), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        self.average = torch.optim.swa_utils.AveragedModel(self.model)
        self.train = DataLoader(TensorDataset(torch.rand(12, 3)), batch_size=3, shuffle=True)
        self.small = DataLoader(TensorDataset(torch.rand(12, 3)), batch_size=1, shuffle=True)
        shuffled = torch.Generator().manual_seed(4)
        self.validation = DataLoader(TensorDataset(torch.rand(8, 3)), batch_size=4, shuffle=True, generator=shuffled)
        self.data = Data(TensorDataset(torch.rand(11, 3)), batch=3, seed=2)
        self.log: list[Any] = []
        self.events = 0
        self._kill_at, self._stop_at = kill_at, stop_at
        world = attach(env=RankEnv(job=settings(snapshots__keep=50), run_id="run", snapshot_dir=folder))
        objects: dict[str, Any] = {"model": self.model, "average": self.average, "optimizer": self.optimizer}
        self.run = Run(
            world, snapshot_every=every, scheduler=self.scheduler, data=self.data if by_data else None, **objects
        )

    def event(self, *facts: Any) -> None:
        self.events += 1
        if self.events == self._kill_at:
            raise Killed
        if self.events == self._stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        self.log.append(facts)

    def learn(self, inputs: Tensor) -> None:
        loss = self.model(inputs).square().mean()
        loss.backward()
        self.update(loss)

    def update(self, loss: Tensor) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        settled(self.run).step(loss)
        self.event("step", self.run.steps_done, loss.item())

    def validate(self, *, logged: bool = True) -> float:
        """Draws numbers, too: the loader shuffles."""
        self.model.eval()
        values: list[float] = [self.model(inputs).sum().item() for (inputs,) in self.run.batches(self.validation)]
        self.model.train()
        if logged:
            self.event("validated", values)
        return sum(values) / len(values)

    def state(self) -> list[Any]:
        momenta = [one["momentum_buffer"] for one in self.optimizer.state.values()]
        return [*self.model.state_dict().values(), *self.average.state_dict().values(), *momenta,
                self.scheduler.state_dict(), self.run.steps_done]  # fmt: skip


def saved_after_the_scheduler(job: Job) -> None:
    for epoch in job.run.epochs(EPOCHS):
        for (inputs,) in job.run.batches(job.train):
            job.learn(inputs)
        accuracy = job.validate()
        job.scheduler.step()
        job.run.save(accuracy=accuracy)
        job.event("epoch", epoch, job.scheduler.get_last_lr())


def saved_before_the_scheduler(job: Job) -> None:
    for epoch in job.run.epochs(EPOCHS):
        for (inputs,) in job.run.batches(job.train):
            job.learn(inputs)
        job.run.save(accuracy=job.validate())
        job.scheduler.step()
        job.run.save(rate=float(job.scheduler.get_last_lr()[0]))
        job.event("epoch", epoch, job.scheduler.get_last_lr())


def not_saved(job: Job) -> None:
    for epoch in job.run.epochs(EPOCHS):
        for (inputs,) in job.run.batches(job.train):
            job.learn(inputs)
        job.validate()
        job.scheduler.step()
        job.event("epoch", epoch)


def validated_within(job: Job) -> None:
    for _ in job.run.epochs(EPOCHS):
        for (inputs,) in job.run.batches(job.train):
            job.learn(inputs)
            if job.run.steps_done % 2 == 0:
                accuracy = job.validate()
                if job.run.steps_done % 4 == 2:
                    job.run.save(accuracy=accuracy)
                job.average.update_parameters(job.model)
        job.scheduler.step()


def changed_after_the_step(job: Job) -> None:
    for _ in job.run.epochs(EPOCHS):
        for (inputs,) in job.run.batches(job.train):
            job.learn(inputs)
            job.average.update_parameters(job.model)
            job.scheduler.step()
            job.event("average", torch.rand(()).item())


def counted(job: Job) -> None:
    """A step every 5 batches, and at the last of 12."""
    for _ in job.run.epochs(EPOCHS):
        loss = torch.zeros(())
        for number, (inputs,) in job.run.enumerate(job.small):
            part = job.model(inputs).square().mean()
            part.backward()
            loss += part.detach()
            if number % 5 == 4 or number + 1 == len(job.small):
                job.update(loss)
                loss = torch.zeros(())
        job.scheduler.step()


def two_steps_a_batch(job: Job) -> None:
    for _ in job.run.epochs(EPOCHS):
        for (inputs,) in job.run.batches(job.validation):
            for _ in range(2):
                job.learn(inputs)


def two_phases(job: Job) -> None:
    for _ in job.run.epochs(EPOCHS):
        for (inputs,) in job.run.batches(job.train):
            job.learn(inputs)
        job.validate(logged=False)  # it is done again if the second phase is resumed
        for (one,), (other,) in zip(job.run.batches(job.small), job.run.batches(job.validation), strict=False):
            job.learn(torch.cat([one, other]))
        job.validate()
        job.scheduler.step()


def by_steps(job: Job) -> None:
    batches = job.run.batches(job.train)
    for done in job.run.steps(12):
        (inputs,) = next(batches)
        job.learn(inputs)
        job.scheduler.step()
        if done % 3 == 0:
            job.run.save(done=done)
        job.average.update_parameters(job.model)
        job.event("average", torch.rand(()).item())


def by_data(job: Job) -> None:
    for epoch in job.run.epochs(EPOCHS):
        for number, batch in job.run.enumerate(job.data):
            job.learn(batch.samples[0])
            job.event("number", number)
        job.run.save(accuracy=job.validate())
        job.scheduler.step()
        job.event("epoch", epoch)


def by_others(job: Job) -> None:
    """Batches from elsewhere: an epoch that is interrupted starts over, but one that was saved at its end does not."""
    inputs = torch.ones(2, 3)
    for epoch in job.run.epochs(EPOCHS):
        job.learn(inputs)
        job.scheduler.step()
        job.run.save(accuracy=1.0)
        job.event("epoch", epoch)


LOOPS: dict[str, Callable[[Job], None]] = {
    one.__name__: one
    for one in (
        saved_after_the_scheduler,
        saved_before_the_scheduler,
        not_saved,
        validated_within,
        changed_after_the_step,
        counted,
        two_steps_a_batch,
        two_phases,
        by_steps,
        by_data,
    )
}


def trained(loop: Callable[[Job], None], folder: Path | None, every: int, **ends: Any) -> Job:
    job = Job(folder, every, by_data=loop is by_data, **ends)
    with job.run:
        loop(job)
    return job


def assert_same_end(found: Job, quiet: Job) -> None:
    assert found.log == quiet.log[len(quiet.log) - len(found.log) :]
    for one, other in zip(found.state(), quiet.state(), strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other


def assert_sound(folder: Path) -> None:
    """All snapshots are one proven history, and nothing else is left."""
    manifests = {path.name: read_manifest(path) for path in folder.glob("step-*")}
    assert manifests
    for one in manifests.values():
        assert not prove(one, manifests).broken
    assert not [path.name for path in folder.iterdir() if path.name.startswith((SCRATCH, REPLACED))]


@pytest.mark.parametrize(
    "every",
    [2, pytest.param(4, marks=pytest.mark.wide), *(pytest.param(one, marks=pytest.mark.long) for one in (1, 3, 100))],
)
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_is_killed_anywhere_ends_alike(tmp_path: Path, name: str, every: int) -> None:
    quiet = trained(LOOPS[name], None, every)
    for kill_at in range(2, quiet.events + 1, 1 if every != 2 else 2):
        folder = tmp_path / str(kill_at)
        with pytest.raises(Killed):
            trained(LOOPS[name], folder, every, kill_at=kill_at)
        assert_same_end(trained(LOOPS[name], folder, every), quiet)
        assert_sound(folder)


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_is_asked_to_stop_anywhere_ends_alike(tmp_path: Path, name: str) -> None:
    quiet = trained(LOOPS[name], None, 100)
    drained = 0
    for stop_at in range(1, quiet.events + 1, 2):
        folder = tmp_path / str(stop_at)
        try:
            trained(LOOPS[name], folder, 100, stop_at=stop_at)
        except Drained:
            drained += 1
            found = trained(LOOPS[name], folder, 100)
            assert len(found.log) < len(quiet.log)
            assert_same_end(found, quiet)
            assert_sound(folder)
    assert drained > 3


def test_an_epoch_that_was_saved_at_its_end_does_not_start_over(tmp_path: Path) -> None:
    quiet = trained(by_others, None, 100)
    for kill_at in (3, 5):
        with pytest.raises(Killed):
            trained(by_others, tmp_path / str(kill_at), 100, kill_at=kill_at)
        assert_same_end(trained(by_others, tmp_path / str(kill_at), 100), quiet)


def test_each_of_several_snapshots_of_one_step_counts(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    with job.run as run:
        for _ in run.epochs(1):
            for (inputs,) in run.batches(job.train):
                job.learn(inputs)
                if run.steps_done == 2:
                    run.save(accuracy=0.5)
                    job.average.update_parameters(job.model)
                    run.save(accuracy=0.75, other=1.0)
            run.save(last=2.0)
        for value in (3.0, 4.0):  # after the loop: taken at once
            job.average.n_averaged.fill_(int(value))
            run.save(after=value)
        job.average.n_averaged.fill_(9)
    metrics = {read_manifest(path).step: dict(read_manifest(path).metrics) for path in tmp_path.glob("step-*")}
    assert metrics == {1: {}, 2: {"accuracy": 0.75, "other": 1.0}, 3: {}, 4: {"last": 2.0, "after": 4.0}}
    assert_sound(tmp_path)
    again = Job(tmp_path, 1)
    again.run._world = attach(env=RankEnv(job=settings(resume=True), run_id="other", snapshot_dir=tmp_path))
    with again.run:
        assert again.average.n_averaged == 9


def ahead(batches: Iterator[Any], depth: int) -> Iterator[Any]:
    """A wrapper that takes batches ahead, as those that copy them to a GPU do."""
    taken = []
    for batch in batches:
        taken.append(batch)
        if len(taken) > depth:
            yield taken.pop(0)
    yield from taken


class Copied:
    """What loops over batches that are copied ahead look like: those that were taken are let go of."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._next: Any = None
        self._load()

    def __iter__(self) -> Iterator[Any]:
        while (batch := self._next) is not None:
            self._load()
            yield batch

    def _load(self) -> None:
        self._next = next(([one.clone() for one in batch] for batch in self._batches), None)


def each(job: Job, batches: Iterable[Any], *counts: int) -> None:
    """Learn from batches, so many in each step, and from one in each step that follows."""
    due, left = count_of(counts), 0
    for (inputs,) in batches:
        left = left or next(due)
        loss = job.model(inputs).square().mean()
        loss.backward()
        left -= 1
        if not left:
            job.update(loss)


def count_of(counts: Iterable[int]) -> Iterator[int]:
    yield from counts
    while True:
        yield 1


AHEAD: Final[dict[str, Callable[[Job], None]]] = {
    "one ahead": lambda job: each(job, ahead(job.run.batches(job.small), 1)),
    "copied": lambda job: each(job, Copied(job.run.batches(job.small))),
    "three ahead": lambda job: each(job, ahead(job.run.batches(job.small), 3)),
    "accumulated": lambda job: each(job, ahead(job.run.batches(job.small), 1), 2, 2, 2, 2, 2, 2),
    "accumulated, by need": lambda job: each(job, ahead(job.run.batches(job.small), 2), 1, 3, 2),
    "two loaders": lambda job: zipped(job, ahead(zip(*map(job.run.batches, (job.small, job.train)), strict=False), 1)),
    "critic": lambda job: critics(job, ahead(job.run.batches(job.small), 1), repeat(3)),
}
RIGHT: Final[dict[str, Callable[[Job], None]]] = {
    "two at first": lambda job: each(job, job.run.batches(job.small), 2),
    "by need": lambda job: each(job, job.run.batches(job.small), 4, 3, 1, 2),
    "less and less": lambda job: each(job, job.run.batches(job.small), 6, 3, 2),
    "joined": lambda job: joined(job, 3, 2, 4),
    "closures": lambda job: critics(job, job.run.batches(job.train), chain([9], repeat(5))),
}


def zipped(job: Job, batches: Iterable[Any]) -> None:
    for (inputs,), (more,) in batches:
        job.learn(torch.cat([inputs, more]))


def critics(job: Job, batches: Iterable[Any], passes: Iterable[int]) -> None:
    """Several backward passes for each batch."""
    for (inputs,), number in zip(batches, passes, strict=False):
        for _ in range(number - 1):
            job.model(inputs).sum().backward()
        job.learn(inputs)


def joined(job: Job, *counts: int) -> None:
    batches = job.run.batches(job.small)
    for number in counts:
        job.learn(torch.cat([inputs for (inputs,) in islice(batches, number)]))
    for (inputs,) in batches:
        job.learn(inputs)


@pytest.mark.parametrize("over", ["epochs", "steps"])
@pytest.mark.parametrize("name", AHEAD)
def test_batches_that_are_taken_ahead_are_an_error_in_the_third_step(name: str, over: str) -> None:
    def loop(job: Job) -> None:
        with job.run as run:
            for _ in getattr(run, over)(1 if over == "epochs" else 40):
                AHEAD[name](job)

    job = Job(None, 100, kill_at=9)  # if it is not noticed: a loop over steps has no end
    with pytest.raises(RuntimeError, match=r"the first step took .* that do not account for that"):
        loop(job)
    assert [fact[1] for fact in job.log] == [1, 2]
    assert not any(one._post_accumulate_grad_hooks for one in job.model.parameters())


def test_data_that_are_taken_ahead_are_an_error() -> None:
    def loop(job: Job, samples: int) -> None:
        job.data = Data(TensorDataset(torch.rand(samples, 3)), batch=3)
        job.run = Run(job.run._world, model=job.model, optimizer=job.optimizer, data=job.data)
        with job.run as run:
            for _ in run.epochs(1):
                for batch in ahead(run.batches(job.data), 1):
                    job.learn(batch.samples[0])

    for samples, message in ((20, "do not account for that"), (5, "this one took none")):
        with pytest.raises(RuntimeError, match=message):
            loop(Job(None, 100), samples)


@pytest.mark.parametrize("name", RIGHT)
def test_steps_of_different_numbers_of_batches_are_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def loop(job: Job) -> None:
        for _ in job.run.epochs(2):
            RIGHT[name](job)

    job = trained(loop, None, 1)
    assert "ahead" not in capsys.readouterr().out
    assert not any(one._post_accumulate_grad_hooks for one in job.model.parameters())


def test_where_nothing_counts_backward_passes_the_end_of_a_pass_tells(capsys: pytest.CaptureFixture[str]) -> None:
    def loop(job: Job) -> None:
        for _ in job.run.epochs(1):
            for (inputs,) in ahead(job.run.batches(job.train), 1):
                parameters = list(job.model.parameters())
                for one, slope in zip(
                    parameters, torch.autograd.grad(job.model(inputs).sum(), parameters), strict=True
                ):
                    one.grad = slope
                job.update(torch.zeros(()))

    with pytest.raises(RuntimeError, match="this one took none"):
        trained(loop, None, 1)
    assert capsys.readouterr().out.count("the first step took 2 batches from Run.batches(), the second 1") == 1


def taken_in_a_thread(job: Job) -> None:
    for _ in job.run.epochs(1):
        batches, taken = job.run.batches(job.train), list[Any]()
        thread = threading.Thread(target=lambda batches=batches, taken=taken: taken.append(next(batches)))
        thread.start()
        thread.join()
        job.learn(taken[0][0])


def test_batches_that_are_taken_in_another_thread_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="in another thread"):
        trained(taken_in_a_thread, None, 1)


def test_a_loop_that_counts_its_batches_from_0_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(job: Job) -> None:
        for _ in job.run.epochs(2):
            for number, (inputs,) in enumerate(job.run.batches(job.small)):
                job.model(inputs).sum().backward()
                if number % 5 == 4 or number + 1 == len(job.small):
                    job.update(torch.zeros(()))

    trained(wrong, None, 1)
    assert "no step followed" not in capsys.readouterr().out
    with pytest.raises(Killed):
        trained(wrong, tmp_path, 1, kill_at=6)
    trained(wrong, tmp_path, 1)
    assert "ended with 2 batches that no step followed" in capsys.readouterr().out


def by_another_loader(job: Job) -> None:
    for _ in job.run.epochs(EPOCHS):
        for (inputs,) in job.run.batches(job.validation):
            job.learn(inputs)


def test_another_loader_than_the_snapshots_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        trained(not_saved, tmp_path, 1, kill_at=3)
    with pytest.raises(PositionError, match="within a pass over DataLoader of TensorDataset with 12 samples"):
        trained(by_another_loader, tmp_path, 1)
