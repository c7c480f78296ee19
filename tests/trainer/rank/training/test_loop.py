"""The loop, mostly with one rank: exact resume, full disks, wrong folders, and the files of a run."""

from __future__ import annotations

import copy
import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from kittrain import Cursor, Data, DDPOptions, Drained, Step, Training, join
from kittrain.job.env import RankEnv
from kittrain.outcome import marker
from kittrain.rank.snapshots.folder.archive import Archive, NoRoomError, SnapshotError
from kittrain.rank.snapshots.folder.fence import Fence, Fenced
from kittrain.rank.snapshots.folder.snapshot import Manifest, read_manifest
from kittrain.rank.training import session
from tests.trainer.mounts import tmpfs
from tests.trainer.nodes import free_port
from tests.trainer.settings import job
from tests.trainer.worlds import finish, fork, placed

STEPS = 4  # an epoch's
EPOCHS = 3  # of 4 steps: 20 samples in batches of 6, 6, 6 and 2


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    inputs, targets = batch
    return functional.mse_loss(model(inputs), targets)


class RandomSamples(Dataset[list[Tensor]]):
    """Adds random numbers to its samples."""

    def __init__(self, samples: TensorDataset) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> list[Tensor]:
        inputs, targets = self._samples[index]
        return [inputs + torch.rand(5) + random.random(), targets]


def samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.rand(20, 5, generator=generator), torch.rand(20, 1, generator=generator))


@contextmanager
def training(
    folder: Path | None,
    on_step: Callable[[Step], None] | None = None,
    *,
    width: int = 4,
    run_id: str = "run",
    memory: Path | None = None,
    workers: int | None = None,
    model_file: bool = True,
    **options: Any,
) -> Iterator[Training]:
    """A model with dropout, an optimizer with state, and a scheduler: all of them have to be restored."""
    every = 1 if memory else None
    env = RankEnv(
        job=job(snapshots__every_steps=3, snapshots__memory_every_steps=every, snapshots__model_file=model_file),
        run_id=run_id,
        snapshot_dir=folder,
        memory_dir=memory,
    )
    with join(seed=3, env=env) as world:
        model = nn.Sequential(nn.Linear(5, width), nn.BatchNorm1d(width), nn.Dropout(0.5), nn.Linear(width, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
        data = Data(samples(), batch=6) if workers is None else Data(RandomSamples(samples()), batch=6, workers=workers)

        def slow_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
            """Wait until the last snapshot is written, as if a step took longer than writing."""
            while not ((ready := run._session.message()).written and (ready.copied or not memory)):
                time.sleep(0.001)
            return loss(model, batch)

        options |= {"epochs": EPOCHS, "scheduler": scheduler, "on_step": on_step}
        run = Training(world, model, optimizer, slow_loss, data, **options)
        yield run


def straight(workers: int | None = None, **options: Any) -> tuple[list[float], dict[str, Tensor]]:
    """The losses and the weights of an uninterrupted run."""
    losses: list[float] = []
    with training(None, lambda step: losses.append(step.loss), workers=workers, **options) as run:
        run.fit()
    return losses, run.model.state_dict()


def stop_at(number: int, losses: dict[int, float]) -> Callable[[Step], None]:
    """Record the losses; request a stop once a step's loss is known."""

    def on_step(step: Step) -> None:
        losses[step.number] = step.loss
        if step.number == number:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_step


@pytest.mark.parametrize("stop", [1, 3, 6, 9])
def test_a_resumed_run_has_the_same_bits_wherever_it_was_stopped(tmp_path: Path, stop: int) -> None:
    losses: dict[int, float] = {}
    with training(tmp_path, stop_at(stop, losses)) as first, pytest.raises(Drained) as drained:
        first.fit()
    assert drained.value.code == 75
    assert stop < max(losses) < 12
    assert not marker.finished(tmp_path, "run")
    torch.rand(3)  # the state of the generators must not matter
    with training(tmp_path, stop_at(0, losses)) as second:
        second.fit()
    expected, weights = straight()
    assert [losses[step] for step in sorted(losses)] == expected
    for name, tensor in second.model.state_dict().items():
        assert torch.equal(tensor, weights[name])
    assert marker.finished(tmp_path, "run")


@pytest.mark.parametrize("stop", [1, 6])
def test_with_float16_the_scale_is_resumed_as_well(tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GradScaler.__init__, "__defaults__", ("cuda", 2.0**30, 2.0, 0.5, 2, True))  # overflows at first
    options: dict[str, Any] = {"autocast": torch.float16, "max_grad_norm": 0.5, "accumulate": 2}
    losses: dict[int, float] = {}
    with training(tmp_path, stop_at(stop, losses), **options) as first, pytest.raises(Drained):
        first.fit()
    with training(tmp_path, stop_at(0, losses), **options) as second:
        second.fit()
    expected, weights = straight(**options)
    assert [losses[step] for step in sorted(losses)] == expected
    assert len(set(expected)) > STEPS, "the model is trained"
    assert second._scaler
    assert second._scaler.get_scale() != 2.0**30
    for name, tensor in second.model.state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_a_resume_within_an_epoch_does_not_change_random_numbers_of_workers(tmp_path: Path) -> None:
    losses: dict[int, float] = {}
    with training(tmp_path, stop_at(4, losses), workers=2) as first, pytest.raises(Drained):
        first.fit()
    assert max(losses) % STEPS != 0
    with training(tmp_path, stop_at(0, losses), workers=2) as second:
        second.fit()
    expected, weights = straight(workers=0)
    assert [losses[step] for step in sorted(losses)] == expected
    assert all(torch.equal(tensor, weights[name]) for name, tensor in second.model.state_dict().items())


def test_training_gives_the_same_result_as_plain_torch() -> None:
    def make() -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.7)

    losses, rates = list[float](), list[float]()
    with join() as world:
        model, optimizer, schedule = make()

        def recording_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
            rates.append(optimizer.param_groups[0]["lr"])
            return loss(model, batch)

        data, on_step = Data(samples(), batch=6, seed=9), lambda step: losses.append(step.loss)
        Training(
            world, model, optimizer, recording_loss, data, epochs=EPOCHS, scheduler=schedule, on_step=on_step
        ).fit()

    plain, optimizer, schedule = make()
    expected_losses, expected_rates = list[float](), list[float]()
    for span in data.order.spans(Cursor(), EPOCHS):
        optimizer.zero_grad()
        lost = loss(plain, list(samples()[data.order.ids(span)]))
        expected_losses.append(lost.item())
        expected_rates.append(optimizer.param_groups[0]["lr"])
        lost.backward()
        optimizer.step()
        schedule.step()
    assert losses == pytest.approx(expected_losses)
    assert rates == expected_rates
    assert len(set(rates)) == STEPS * EPOCHS / 2
    for name, weight in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight)


def test_metrics_are_saved_with_their_state_and_the_best_snapshot_is_kept(tmp_path: Path) -> None:
    metrics = [{"accuracy": 0.5}, {"accuracy": 0.9}, {"accuracy": 0.7}]
    with training(tmp_path / "every") as run:
        run.on_epoch = metrics.__getitem__
        run.fit()
    found = {one.step: dict(one.metrics) for one in manifests(tmp_path / "every")}
    assert found == {6: {}, 9: {}, 12: metrics[2]}  # of those after every third step, the last three are kept

    settings = job(snapshots__every_steps=5, snapshots__keep=1, snapshots__keep_best="max:accuracy")
    env = RankEnv(job=settings, run_id="run", snapshot_dir=tmp_path / "best")
    with join(seed=3, env=env) as world:
        model = nn.Linear(5, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = Data(samples(), batch=6)
        Training(world, model, optimizer, loss, data, epochs=EPOCHS, on_epoch=metrics.__getitem__).fit()
    assert {one.step: dict(one.metrics) for one in manifests(tmp_path / "best")} == {8: metrics[1], 12: metrics[2]}


def test_what_resumes_after_the_last_step_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with training(tmp_path) as run:
            run.fit()
    assert f"resuming after step {STEPS * EPOCHS}, at the end of epoch {EPOCHS} with 1 rank" in capsys.readouterr().out


def manifests(folder: Path) -> list[Manifest]:
    """The manifests of all snapshots in a folder."""
    return [read_manifest(path) for path in folder.glob("step-*")]


@pytest.mark.slow
def test_no_rank_ends_as_drained_before_the_snapshot_is_published(tmp_path: Path) -> None:
    port = free_port()
    ranks = [fork(drain, rank, port, tmp_path) for rank in (0, 1)]
    assert [finish(rank) for rank in ranks] == [75, 75]
    seen = [json.loads((tmp_path / f"seen-{rank}").read_text()) for rank in (0, 1)]
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1


def drain(rank: int, port: int, folder: Path) -> None:
    """Rank 0 publishes slowly; each rank records what is published when it ends."""
    os.environ.update({**placed(rank, 2, port), "KIT_BACKEND": "gloo", "KIT_SNAPSHOT_DIR": str(folder / "snapshots")})
    publish = Archive.publish

    def slowly(*given: Any) -> None:
        time.sleep(1)
        publish(*given)

    with pytest.MonkeyPatch.context() as patch, join(seed=3) as world:
        patch.setattr(Archive, "publish", slowly)
        model = nn.Linear(5, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = Data(samples(), batch=6)
        try:
            Training(world, model, optimizer, loss, data, epochs=EPOCHS, on_step=stop_at(1 + rank, {})).fit()
        except Drained:
            published = [path.name for path in (folder / "snapshots").glob("step-*")]
            (folder / f"seen-{rank}").write_text(json.dumps(published))
            raise


def test_a_crashed_run_resumes_from_the_last_snapshot(tmp_path: Path) -> None:
    seen: list[int] = []

    def crash(step: Step) -> None:
        seen.append(step.number)
        if step.number == 8:
            raise RuntimeError

    with training(tmp_path, crash) as first, pytest.raises(RuntimeError):
        first.fit()
    losses: dict[int, float] = {}
    with training(tmp_path, stop_at(0, losses)) as second:
        second.fit()
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(losses) == [7, 8, 9, 10, 11, 12]
    assert list(losses.values()) == straight()[0][6:]


def test_a_crashed_run_resumes_from_the_last_copy_in_memory_and_a_missing_snapshot_is_due(tmp_path: Path) -> None:
    losses, weights = straight()
    folder, again = tmp_path / "snapshots", list[Step]()

    def crash(step: Step) -> None:
        if step.number == 8:
            raise ZeroDivisionError

    with training(folder, crash, memory=tmp_path / "memory") as run, pytest.raises(ZeroDivisionError):
        run.fit()
    shutil.rmtree(folder / "step-00000006-g0001")
    with training(folder, again.append, memory=tmp_path / "memory") as run:
        run.fit()
    first = again[0].number
    assert first in {7, 8}
    assert [step.loss for step in again] == losses[first - 1 :]
    assert all(torch.equal(tensor, weights[name]) for name, tensor in run.model.state_dict().items())
    assert {path.name[:13] for path in folder.glob("step-*-g0002")} >= {f"step-{first:08}", "step-00000012"}


def test_a_finished_run_takes_no_more_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with training(tmp_path) as first:
        first.fit()
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    assert all(torch.equal(weights[name], one) for name, one in first.model.state_dict().items())
    facts = json.loads(marker.path(tmp_path, "run").read_text())
    assert facts == {"run": "run", "step": 12, "model": "model.pt"}
    taken: dict[int, float] = {}
    with training(tmp_path, stop_at(0, taken)) as again:
        again.fit()
    assert taken == {}
    assert not list(tmp_path.glob("step-*-g0002"))
    assert "after step 12" in capsys.readouterr().out
    assert all(torch.equal(weights[name], one) for name, one in again.model.state_dict().items())


def test_a_stop_request_in_the_last_step_ends_the_run_normally(tmp_path: Path) -> None:
    with training(tmp_path, stop_at(10, {})) as run:  # its loss is known after 11; 12 sends the request
        run.fit()
    assert marker.finished(tmp_path, "run")


def test_signal_handlers_are_restored(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with training(tmp_path) as run:
        run.fit()
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_model_of_the_same_run_is_an_error(tmp_path: Path) -> None:
    with training(tmp_path) as run:
        run.fit()
    with training(tmp_path, width=5) as other, pytest.raises(SnapshotError, match="other parameters"):
        other.fit()
    with training(tmp_path, width=5, run_id="another") as other:
        other.fit()


def test_a_fenced_loop_stops_at_its_next_snapshot(tmp_path: Path) -> None:
    def overtake(step: Step) -> None:
        if step.number == 7:
            Fence(tmp_path).claim("run")

    with training(tmp_path, overtake) as stale, pytest.raises(Fenced):
        stale.fit()
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000003-g0001"]


def test_a_full_disk_does_not_stop_training(tmp_path: Path) -> None:
    log = tmp_path / "log"
    folder = tmp_path / "snapshots"
    assert finish(fork(train_on_a_full_disk, folder, log)) == 0
    lines = log.read_text().splitlines()
    assert [line.startswith("warning: no snapshot at step 6") for line in lines].count(True) == 1
    warning = next(line for line in lines if line.startswith("warning"))
    assert "File too large" in warning
    assert "the last good one is step-00000003-g0001" in warning
    assert sorted(path.name for path in folder.glob("step-*")) == [f"step-{n:08}-g0001" for n in (3, 9, 12)]
    assert not list(folder.glob(".tmp-*"))


def train_on_a_full_disk(folder: Path, log: Path) -> None:
    """No space is left between steps 4 and 8."""
    everything = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def on_step(step: Step) -> None:
        if step.number in (4, 8):
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000 if step.number == 4 else everything, everything))

    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
    with training(folder, on_step) as run:
        run.fit()


def test_a_run_whose_last_snapshot_is_all_that_it_leaves_fails_without_it(tmp_path: Path) -> None:
    folder, log = tmp_path / "snapshots", tmp_path / "log"
    assert finish(fork(train_without_room_at_the_end, folder, log)) == 0
    assert not marker.finished(folder, "run")
    assert [path.name for path in folder.glob("step-*")] == ["step-00000003-g0001"]


def train_without_room_at_the_end(folder: Path, log: Path) -> None:
    """No space is left from step 4 on, and no model file is wanted, as in a node's memory."""
    everything = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def on_step(step: Step) -> None:
        if step.number == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, everything))

    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
    told = "not stored anywhere: no snapshot at step 12: .*File too large"
    with training(folder, on_step, model_file=False) as run, pytest.raises(SnapshotError, match=told):
        run.fit()


@pytest.mark.needs_root
def test_room_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", size="64k") as small:
        (small / "filler").write_bytes(bytes(60 << 10))
        assert finish(fork(train_without_room, small)) == 0
        assert not marker.finished(small, "run")


def train_without_room(folder: Path) -> None:
    session.ROOM = 0.0  # type: ignore[misc]
    told = "the trained model cannot be written to .*: .*No space left on device"
    with training(folder) as run, pytest.raises(NoRoomError, match=told):
        run.fit()


@pytest.mark.parametrize(("epochs", "every"), [(0, 1), (1, 0)])
def test_nothing_to_train_is_an_error(epochs: int, every: int) -> None:
    model = nn.Linear(1, 1)
    data = Data(TensorDataset(torch.zeros(1, 1)), batch=1)
    optimizer = torch.optim.SGD(model.parameters())
    with join() as world, pytest.raises(ValueError, match="1 or more"):
        Training(world, model, optimizer, loss, data, epochs=epochs, snapshot_every=every)


@pytest.mark.parametrize("norm", [0.05, None], ids=["clipped", "unclipped"])  # clipping hides a constant factor
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_options_of_a_step_give_the_same_result_as_plain_torch(
    capsys: pytest.CaptureFixture[str], dtype: torch.dtype, norm: float | None
) -> None:
    evaluated: list[int] = []

    def on_evaluate(steps: int) -> dict[str, float]:
        evaluated.append(steps)
        return {"accuracy": steps / 10}

    with join(seed=3) as world:
        model = nn.Linear(5, 1)
        plain = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        data = Data(samples(), batch=6)
        options: dict[str, Any] = {"accumulate": 2, "max_grad_norm": norm, "autocast": dtype}
        fitted = Training(
            *(world, model, optimizer, loss, data),
            epochs=EPOCHS,
            evaluate_every=5,
            on_evaluate=on_evaluate,
            on_step=lambda step: fitted.log(square=step.loss**2),
            **options,
        )
        fitted.fit()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.2, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    for span in data.order.spans(Cursor(), EPOCHS):
        optimizer.zero_grad()
        ids = data.order.ids(span)
        for half in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
            with torch.autocast("cpu", dtype=dtype):
                lost = loss(plain, list(samples()[half]))
            scaler.scale(lost / 2).backward()
        scaler.unscale_(optimizer)
        if norm is not None:
            nn.utils.clip_grad_norm_(plain.parameters(), norm)
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(dict(model.state_dict()), dict(plain.state_dict()))
    assert evaluated == [5, 10]
    assert "step 10/12 accuracy 1.0000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "accumulate=0"),
        ({"accumulate": 2, "virtual_ranks": 2}, "exclude each other"),
        ({"accumulate": 2, "ddp": DDPOptions(static_graph=True)}, "static_graph exclude"),
        ({"evaluate_every": 5}, "belong together"),
        ({"autocast": torch.float16, "virtual_ranks": 2}, "float16 excludes virtual_ranks"),
    ],
)
def test_options_that_exclude_each_other_are_an_error(options: dict[str, Any], message: str) -> None:
    model = nn.Linear(5, 1)
    with join() as world, pytest.raises(ValueError, match=message):
        Training(world, model, torch.optim.SGD(model.parameters()), loss, Data(samples(), batch=6), epochs=1, **options)


def test_more_batches_than_samples_are_an_error() -> None:
    model, data = nn.Linear(5, 1), Data(samples(), batch=6)
    with join() as world:
        fitted = Training(world, model, torch.optim.SGD(model.parameters()), loss, data, epochs=1, accumulate=7)
        with pytest.raises(ValueError, match="6 samples per step cannot be divided into 7 batches"):
            fitted.fit()
