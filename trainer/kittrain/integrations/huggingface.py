"""One line for a Hugging Face Trainer: ``trainer.add_callback(KitCallback(trainer))``.

It shows steps and metrics in the job's status, saves a checkpoint and stops when the job is drained, and lets
``trainer.train()`` go on from the newest checkpoint that all ranks have completed.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback

from kittrain.env import rank_env
from kittrain.integrations import checkpoints
from kittrain.integrations.checkpoints import Marker, kept_accumulation, position_note
from kittrain.integrations.cpu import configure_accelerate
from kittrain.integrations.framework_run import FrameworkRun, joined
from kittrain.system.heartbeat import Phase
from kittrain.world.distributed import World

FOLDER: Final = "huggingface"  # in the snapshot folder
ADVICE: Final = "on CPUs, use TrainingArguments(use_cpu=True) or the environment variable ACCELERATE_USE_CPU=true"

configure_accelerate()  # a script imports this module before it makes TrainingArguments, which read the variables


class KitCallback(TrainerCallback):
    """Connects a Trainer with the kit. Add it last: it ends the process when the job is drained.

    ``trainer.args.output_dir`` becomes a folder in the job's snapshot folder, which outlives pods. Checkpoints are
    written when the Trainer's arguments say so (``save_strategy``, ``save_steps``), and at a drain.

    Args:
        trainer: a ``transformers.Trainer``, before ``train()``.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._train = trainer.train
        self._run: FrameworkRun | None = None
        self._drains = False
        self._from: Path | None = None
        folder = rank_env().snapshot_dir
        if folder:
            trainer.args.output_dir = str(folder / FOLDER)
        trainer.train = self.train

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train as the Trainer does, from the newest complete checkpoint of this job; else as the script says.

        Raises:
            DistributedError: the ranks have no process group.
            Drained: the job was drained; a checkpoint was saved.
        """
        world = joined(ADVICE)
        self._from = self._newest(world)
        if self._from:
            resume_from_checkpoint = str(self._from)
        with FrameworkRun(world) as self._run:
            return self._train(resume_from_checkpoint, *args, **kwargs)

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Report where training starts."""
        run = self._running()
        run.plan.total_steps = state.max_steps
        run.plan.epochs = math.ceil(args.num_train_epochs) if args.max_steps <= 0 else None
        marker = Marker.read(self._from) if self._from else None
        run.begin(state.global_step, position_note(marker, run.world.size))

    def on_step_begin(self, *_args: Any, **_: Any) -> None:
        """The batches of a step have been loaded."""
        self._running().world.heartbeat.beat(Phase.COMPUTING)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Exchange stop requests; ask for a checkpoint if there is one."""
        run, finished = self._running(), state.global_step >= state.max_steps
        samples = args.train_batch_size * args.gradient_accumulation_steps
        epoch = max(math.ceil(state.epoch) - 1, 0)
        stop = run.step(state.global_step, epoch=epoch, samples=samples).stop
        self._drains = stop and not finished
        if self._drains:
            control.should_save, control.should_evaluate = True, False
        if control.should_save:
            run.saving()
        elif control.should_evaluate:
            run.world.heartbeat.beat(Phase.EVALUATING)
        else:
            run.world.heartbeat.beat(Phase.DATA)

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """An epoch's checkpoint and evaluation come after its last step."""
        if control.should_save or control.should_evaluate:
            self._running().saving()

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Show what the Trainer logs."""
        numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, int | float)}
        if self._run:
            self._run.loss = numbers.pop("loss", self._run.loss)
            self._run.log({name: value for name, value in numbers.items() if name != "epoch"})

    def on_evaluate(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """Training goes on, or a checkpoint comes next."""
        if self._run and control.should_save:
            self._run.saving()
        elif self._run:
            self._run.world.heartbeat.beat(Phase.DATA)

    def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """The Trainer has saved: mark the checkpoint as complete, and stop if the job is drained."""
        run = self._running()
        marker = Marker(step=state.global_step, ranks=run.world.size, accumulation=args.gradient_accumulation_steps)
        run.saved(Path(args.output_dir) / f"checkpoint-{state.global_step}", marker)
        if self._drains:
            run.drain(state.global_step)

    def on_train_end(self, *_args: Any, **_: Any) -> None:
        """Show the last step."""
        self._running().end()

    def _running(self) -> FrameworkRun:
        assert self._run, "train() has not been called"
        return self._run

    def _newest(self, world: World) -> Path | None:
        """The checkpoint to go on from, the same on all ranks; the steps keep their samples if they can."""
        found = checkpoints.newest(Path(self._trainer.args.output_dir), "checkpoint-") if world.is_main else None
        path = world.broadcast_value(str(found or ""), str)
        if not path:
            return None
        if accumulation := kept_accumulation(Marker.read(Path(path)), world.size):
            self._trainer.args.gradient_accumulation_steps = accumulation
        return Path(path)
