"""One line for a Lightning Trainer: ``trainer.callbacks.append(KitCallback(trainer))``.

It shows steps and metrics in the job's status, saves checkpoints as the job asks for (``snapshots``) and at a drain,
and lets ``trainer.fit()`` go on from the newest one that all ranks have completed, within an epoch, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from lightning.pytorch import Callback

from kittrain.env import rank_env
from kittrain.integrations import checkpoints
from kittrain.integrations.checkpoints import Marker, kept_accumulation, position_note
from kittrain.integrations.framework_run import FrameworkRun, joined
from kittrain.integrations.lightning_position import Position, rescale
from kittrain.system.heartbeat import Phase
from kittrain.training.snapshot_schedule import SnapshotSchedule
from kittrain.world.distributed import DistributedError

FOLDER: Final = "lightning"  # in the snapshot folder
NAME: Final = "checkpoint-"
FILE: Final = "trainer.ckpt"  # in a checkpoint's folder; a folder itself, if the strategy shards it
ADVICE: Final = "pass strategy='ddp', devices=LOCAL_WORLD_SIZE and num_nodes=GROUP_WORLD_SIZE to the Trainer"


class KitCallback(Callback):
    """Connects a Trainer with the kit. Append it last: it ends the process when the job is drained.

    Args:
        trainer: a ``lightning.Trainer``, before ``fit()``.
    """

    def __init__(self, trainer: Any) -> None:
        env = rank_env()
        self._trainer = trainer
        self._fit = trainer.fit
        self._folder = env.snapshot_dir / FOLDER if env.snapshot_dir else None
        self._keep = env.snapshot_keep
        self._schedule = SnapshotSchedule(env, every=env.snapshot_every)
        self._from: Path | None = None
        self._marker: Marker | None = None
        self._run: FrameworkRun | None = None
        self._position = Position(trainer)
        self._step = 0
        trainer.fit = self.fit

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Fit as the Trainer does, from the newest complete checkpoint of this job; else as the script says.

        Raises:
            DistributedError: the ranks have no process group, or see different checkpoints.
            Drained: the job was drained; a checkpoint was saved.
        """
        self._from = checkpoints.newest(self._folder, NAME) if self._folder else None
        if self._from:
            self._marker = Marker.read(self._from)
            kwargs["ckpt_path"] = str(self._from / FILE)
        return self._fit(*args, **kwargs)

    def setup(self, trainer: Any, _module: Any, stage: str) -> None:
        """The ranks have met: they must agree on the checkpoint."""
        if stage != "fit":
            return
        world = joined(ADVICE)
        mine = str(self._from or "")
        if world.broadcast_value(mine, str) != mine:
            raise DistributedError("the ranks see different checkpoints: is the snapshot folder shared by all nodes?")
        if accumulation := kept_accumulation(self._marker, world.size):
            trainer.accumulate_grad_batches = accumulation
        world.heartbeat.beat(Phase.RESTORING)

    def on_load_checkpoint(self, _trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
        """With another number of ranks, the epoch's position is another number of batches."""
        world = joined(ADVICE)
        if self._marker and self._marker.ranks != world.size:
            rescale(checkpoint, self._marker.ranks, world.size)

    def state_dict(self) -> dict[str, Any]:
        """The random generators of all ranks. Collective."""
        mine = self._position.state_dict()
        everyone = [mine] * (dist.get_world_size() if dist.is_initialized() else 1)
        if dist.is_initialized():
            dist.all_gather_object(everyone, mine)
        return {"ranks": everyone}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's; a rank that is new has none."""
        rank, ranks = rank_env().rank, state_dict["ranks"]
        self._position.restored = ranks[rank] if rank < len(ranks) else None

    def on_train_start(self, trainer: Any, _module: Any) -> None:
        """Report where training starts, and go to the position in the data."""
        world = joined(ADVICE)
        self._run = run = FrameworkRun(world)
        run.__enter__()
        self._step = trainer.global_step
        self._schedule.restart(self._step)
        epochs, batches = trainer.max_epochs, trainer.num_training_batches
        run.plan.epochs = epochs if epochs and epochs > 0 else None
        run.plan.total_steps = _total_steps(trainer, batches)
        run.begin(self._step, position_note(self._marker, world.size))
        self._position.go()

    def on_train_epoch_start(self, *_: Any) -> None:
        """The order of an epoch depends on the random generators at its start."""
        self._position.begin_epoch()

    def on_train_batch_start(self, *_: Any) -> None:
        """The batch has been loaded."""
        self._position.loaded()
        self._running().world.heartbeat.beat(Phase.COMPUTING)

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, batch: Any, _index: int) -> None:
        """After a step: exchange stop requests, and save a checkpoint if one is due or the job is drained."""
        run, step = self._running(), trainer.global_step
        if step == self._step:  # a batch that is accumulated
            return
        self._step = step
        requests = run.step(
            step,
            epoch=trainer.current_epoch,
            samples=_size(batch) * trainer.accumulate_grad_batches,
            loss=outputs["loss"] if isinstance(outputs, Mapping) and "loss" in outputs else None,
            due=self._schedule.time_due,
        )
        stops = requests.stop and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        if self._folder and (stops or self._schedule.is_due(step, time_due=requests.due)):
            self._save(trainer, self._folder, step)
        if stops:
            run.drain(step)
        run.world.heartbeat.beat(Phase.DATA)

    def on_validation_start(self, *_: Any) -> None:
        """Evaluation has its own time limit."""
        if self._run:
            self._run.world.heartbeat.beat(Phase.EVALUATING)

    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        """Show what was logged."""
        self._show_metrics(trainer)

    def on_train_epoch_end(self, trainer: Any, _module: Any) -> None:
        """Show what was logged; the next epoch starts with the data's usual order."""
        self._position.end_epoch()
        self._show_metrics(trainer)

    def on_train_end(self, *_: Any) -> None:
        """Show the last step."""
        run, self._run = self._running(), None
        run.end()
        run.__exit__(None, None, None)

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """Restore the signal handlers."""
        run, self._run = self._run, None
        if run:
            run.__exit__(type(exception), exception, exception.__traceback__)

    def _save(self, trainer: Any, folder: Path, step: int) -> None:
        run = self._running()
        run.saving()
        checkpoint = folder / f"{NAME}{step}"
        if run.world.is_main:
            checkpoint.mkdir(parents=True, exist_ok=True)
        run.world.barrier()
        trainer.save_checkpoint(checkpoint / FILE)
        run.saved(checkpoint, Marker(step=step, ranks=run.world.size, accumulation=trainer.accumulate_grad_batches))
        self._schedule.restart(step)
        if run.world.is_main:
            checkpoints.prune(folder, NAME, keep=self._keep)

    def _show_metrics(self, trainer: Any) -> None:
        if self._run:
            self._run.log({name: float(value) for name, value in trainer.callback_metrics.items()})
            self._run.world.heartbeat.beat(Phase.DATA)

    def _running(self) -> FrameworkRun:
        assert self._run, "fit() has not been called"
        return self._run


def _total_steps(trainer: Any, batches: float) -> int | None:
    """Optimizer steps of the whole run, if known."""
    if trainer.max_steps and trainer.max_steps > 0:
        return int(trainer.max_steps)
    if not trainer.max_epochs or trainer.max_epochs < 0 or batches == float("inf"):
        return None
    return int(-(-batches // trainer.accumulate_grad_batches) * trainer.max_epochs)


def _size(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor; 0 if there is none."""
    while isinstance(batch, Mapping | list | tuple) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]
    return len(batch) if getattr(batch, "ndim", 0) else 0
