"""One line for a Lightning Trainer: ``trainer.callbacks.append(KitCallback(trainer))``.

It shows steps and metrics in the job's status, saves checkpoints as the job asks for (``snapshots``) and at a drain,
and lets ``trainer.fit()`` continue from the newest one that all ranks have completed, within an epoch, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from lightning.pytorch import Callback

from kittrain.integrations import checkpoints, places
from kittrain.integrations.checkpoints import Marker, kept_accumulation, position_note
from kittrain.integrations.framework_run import FrameworkRun, joined
from kittrain.integrations.lightning_position import Position, before_batch, before_epoch, rescale
from kittrain.integrations.lightning_trainer import Between, Metrics, limit, log_again, logged, size_of, total_steps
from kittrain.integrations.places import Place
from kittrain.job.env import rank_env
from kittrain.rank.training.snapshot_schedule import SnapshotSchedule
from kittrain.rank.world.distributed import DistributedError
from kittrain.rank.world.replica_state import ReplicaState
from kittrain.system.heartbeat import Phase

Counts = Callable[[dict[str, Any]], None]  # changes the counts in a checkpoint

FOLDER: Final = "lightning"  # in the snapshot folder: the first Trainer's place
NAME: Final = "checkpoint-"
FILE: Final = "trainer.ckpt"  # in a checkpoint's folder; a folder itself, if the strategy shards it
ADVICE: Final = "pass strategy='ddp', devices=LOCAL_WORLD_SIZE and num_nodes=GROUP_WORLD_SIZE to the Trainer"


class KitCallback(Callback):
    """Connects a Trainer with kittrain. Append it last: it ends the process when the job is drained.

    A checkpoint that is due after a batch is written before the next one, or the next epoch, begins: after the
    validation, what other callbacks do, and the schedulers' steps. What comes after it is what a resume does next.

    Args:
        trainer: a ``lightning.Trainer``, before ``fit()``.
    """

    def __init__(self, trainer: Any) -> None:
        env = rank_env()
        self._trainer = trainer
        self._fit = trainer.fit
        root = env.snapshot_dir / FOLDER if env.snapshot_dir else None
        self._place = places.take(root, str(trainer.default_root_dir)) if root else None
        self._calls = 0
        self._call: Place | None = None
        self._keep = env.job.snapshots.keep
        self._schedule = SnapshotSchedule(env, every=env.job.snapshots.every_steps)
        self._from: Path | None = None
        self._marker: Marker | None = None
        self._run: FrameworkRun | None = None
        self._position = Position(trainer)
        self._counts: Counts | None = None  # how to change those of the checkpoint that is being written
        self._replicas: ReplicaState | None = None
        self._buckets: list[dict[str, Any]] = []  # what DDP modules had at the restored position
        self._metrics: Metrics = {}  # that were logged last, where the checkpoint is
        self._step = 0
        self._due = self._stops = self._saving = False
        trainer.fit = self.fit
        trainer.callbacks.insert(0, Between(self._before_batch, self._before_epoch))

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Fit as the Trainer does, from the newest complete checkpoint of this training; else as the script says.

        Raises:
            DistributedError: the ranks have no process group, or see different checkpoints.
            Drained: the job was drained; a checkpoint was saved.
        """
        self._calls += 1
        self._call = self._place.nth_call(self._calls) if self._place else None
        self._from = checkpoints.newest(self._call.folder, NAME) if self._call else None
        self._marker = Marker.read(self._from) if self._from else None
        self._position = Position(self._trainer)
        self._step = 0
        if self._from:
            kwargs["ckpt_path"] = str(self._from / FILE)
        found = self._fit(*args, **kwargs)
        if self._marker and not self._step:
            self._again(self._marker.step)
        return found

    def setup(self, trainer: Any, _module: Any, stage: str) -> None:
        """The ranks have met: they must agree on the checkpoint."""
        if stage != "fit":
            return
        world = joined(ADVICE)
        mine = str(self._from or (self._call.folder if self._call else ""))
        if world.broadcast_value(mine, str) != mine:
            raise DistributedError("the ranks see different checkpoints: is the snapshot folder shared by all nodes?")
        if accumulation := kept_accumulation(self._marker, world.size):
            trainer.accumulate_grad_batches = accumulation
        if self._call and world.is_main:
            self._call.begin()
        world.heartbeat.beat(Phase.RESTORING)

    def on_load_checkpoint(self, _trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
        """With another number of ranks, the epoch's position is another number of batches."""
        world = joined(ADVICE)
        if self._marker and self._marker.ranks != world.size:
            rescale(checkpoint, self._marker.ranks, world.size)

    def on_save_checkpoint(self, _trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
        """Count neither the batch nor the epoch that is about to begin."""
        if self._counts:
            self._counts(checkpoint)

    def state_dict(self) -> dict[str, Any]:
        """The random generators of all ranks, and what was logged. Collective."""
        mine = self._position.state_dict()
        if self._replicas and self._saving:
            mine["replicas"] = self._replicas.capture()
        everyone = [mine] * (dist.get_world_size() if dist.is_initialized() else 1)
        if dist.is_initialized():
            dist.all_gather_object(everyone, mine)
        return {"ranks": everyone, "metrics": self._metrics, "stopped": self._trainer.should_stop}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's; a rank that is new has none."""
        rank, ranks = rank_env().rank, state_dict["ranks"]
        self._position.restored = ranks[rank] if rank < len(ranks) else None
        self._buckets = ranks[min(rank, len(ranks) - 1)].get("replicas", [])
        self._metrics = state_dict.get("metrics", {})
        if self._marker and self._marker.limit == limit(self._trainer):
            self._trainer.should_stop = state_dict["stopped"]  # early stopping, which is not in Lightning's own state

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Report where training starts, and go to the position in the data."""
        world = joined(ADVICE)
        self._replicas = ReplicaState(lambda: {one: name for name, one in module.named_parameters()}, world.print)
        self._replicas.restore(self._buckets)
        self._replicas.apply()
        self._run = run = FrameworkRun(world)
        run.__enter__()
        self._step = trainer.global_step
        self._due = self._stops = False
        self._schedule.restart(self._step)
        epochs, batches = trainer.max_epochs, trainer.num_training_batches
        run.plan.epochs = epochs if epochs and epochs > 0 else None
        run.plan.total_steps = total_steps(trainer, batches)
        run.begin(self._step, position_note(self._marker, world.size))
        log_again(self._trainer, self._metrics)
        self._position.go()

    def on_train_epoch_start(self, *_: Any) -> None:
        """The order of an epoch depends on the random generators at its start."""
        self._position.begin_epoch()

    def on_train_batch_start(self, *_: Any) -> None:
        """The batch has been loaded."""
        self._position.loaded()
        self._running().world.heartbeat.beat(Phase.COMPUTING)

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, batch: Any, _index: int) -> None:
        """After a step: exchange stop requests, and note whether a checkpoint is due or the job is drained."""
        run, step = self._running(), trainer.global_step
        if step == self._step:  # a batch that is accumulated
            return
        self._step = step
        requests = run.step(
            step,
            epoch=trainer.current_epoch,
            samples=size_of(batch) * trainer.accumulate_grad_batches,
            loss=outputs["loss"] if isinstance(outputs, Mapping) and "loss" in outputs else None,
            due=self._schedule.time_due,
        )
        self._stops = requests.stop
        self._due = self._due or requests.stop or self._schedule.is_due(step, time_due=requests.due)
        if self._due:
            self._position.mark()
        run.continues(ended=False)

    def on_validation_start(self, *_: Any) -> None:
        """Evaluation has its own time limit."""
        if self._run:
            self._run.evaluating()

    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        """Show what was logged."""
        if self._run and self._due:
            self._position.mark()
        self._show_metrics(trainer)

    def on_train_epoch_end(self, trainer: Any, _module: Any) -> None:
        """Show what was logged; the next epoch starts with the data's usual order."""
        self._position.end_epoch()
        self._show_metrics(trainer)

    def on_train_end(self, trainer: Any, _module: Any) -> None:
        """Save the last checkpoint, whose resume has nothing left to do, and show the last step."""
        run = self._running()
        if self._call and self._step > (self._marker.step if self._marker else 0):
            self._position.mark(boundary=True)
            self._save(trainer, self._call.folder, ended=True)
        run.end()
        self._run = None
        run.__exit__(None, None, None)
        if self._call and run.world.is_main:
            self._call.end({"step": self._step})

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """Restore the signal handlers."""
        run, self._run = self._run, None
        if run:
            run.__exit__(type(exception), exception, exception.__traceback__)

    def _before_batch(self, trainer: Any) -> None:
        if self._due:
            self._save_or_drain(trainer, before_batch)

    def _before_epoch(self, trainer: Any) -> None:
        self._position.restore_epoch()
        if self._due:
            self._position.mark(boundary=True)
            self._save_or_drain(trainer, before_epoch)

    def _save_or_drain(self, trainer: Any, counts: Counts) -> None:
        self._due = False
        if self._call:
            self._save(trainer, self._call.folder, counts)
        if self._stops:
            self._running().drain(self._step)

    def _save(self, trainer: Any, folder: Path, counts: Counts | None = None, *, ended: bool = False) -> None:
        run, step = self._running(), self._step
        run.saving()
        checkpoint = folder / f"{NAME}{step}"
        if run.world.is_main:
            checkpoints.remove(checkpoint)  # what a kill has left
            checkpoint.mkdir(parents=True)
        run.world.barrier()
        self._metrics = logged(trainer)
        self._counts, self._saving = counts, True
        trainer.save_checkpoint(checkpoint / FILE)
        self._counts, self._saving = None, False
        marker = Marker(
            step=step,
            ranks=run.world.size,
            accumulation=trainer.accumulate_grad_batches,
            limit=limit(trainer) if ended else "",
        )
        run.saved(checkpoint, marker)
        self._schedule.restart(step)
        if run.world.is_main:
            checkpoints.prune(folder, NAME, keep=self._keep)

    def _again(self, step: int) -> None:
        """Training had ended before a restart: its last checkpoint has been loaded, and nothing was trained."""
        world = joined(ADVICE)
        log_again(self._trainer, self._metrics)
        self._position.end()
        if self._call and world.is_main:
            self._call.end({"step": step})
        world.print(f"training ended before the restart, after step {step}: it is not repeated")
        world.heartbeat.beat(Phase.FINISHING, step=step)

    def _show_metrics(self, trainer: Any) -> None:
        if self._run:
            self._run.log({name: float(value) for name, value in trainer.callback_metrics.items()})
            self._run.world.heartbeat.beat(Phase.DATA)

    def _running(self) -> FrameworkRun:
        assert self._run, "fit() has not been called"
        return self._run
