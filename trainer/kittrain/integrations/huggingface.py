"""One line for a Hugging Face Trainer: ``trainer.add_callback(KitCallback(trainer))``.

It shows steps and metrics in the job's status, saves a checkpoint and stops when the job is drained, and lets
``trainer.train()`` continue from the newest checkpoint that all ranks have completed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback
from transformers.trainer_utils import SaveStrategy, TrainOutput, get_last_checkpoint

from kittrain.integrations import checkpoints
from kittrain.integrations.checkpoints import Marker, kept_accumulation, position_note
from kittrain.integrations.cpu import configure_accelerate
from kittrain.integrations.framework_run import FrameworkRun, joined
from kittrain.integrations.huggingface_trainer import (
    Replicas,
    beat,
    ends_epoch,
    limit,
    output_dir,
    place,
    restore_callbacks,
    result,
)
from kittrain.integrations.places import Place
from kittrain.rank.world.distributed import World
from kittrain.system.heartbeat import Phase

NAME: Final = "checkpoint-"  # of the Trainer's checkpoints
EXTRA: Final = "resume-"  # of those that it would not have written: its search for the best one must not find them
STATE: Final = "trainer_state.json"  # in a checkpoint
ADVICE: Final = "on CPUs, use TrainingArguments(use_cpu=True) or the environment variable ACCELERATE_USE_CPU=true"

configure_accelerate()  # a script imports this module before it makes TrainingArguments, which read the variables


class _Ended(BaseException):
    """The checkpoint that a training continues from is that of its end. No Exception: nothing in between catches it."""


class KitCallback(TrainerCallback):
    """Connects a Trainer with kittrain. Add it last: it ends the process when the job is drained.

    ``trainer.args.output_dir`` becomes a folder in the job's snapshot folder, which outlives pods. Checkpoints are
    written when the Trainer's arguments say so (``save_strategy``, ``save_steps``), and at a drain. Those of an epoch's
    last step are written at the end of the epoch, after its evaluation: what comes after a checkpoint is what a resume
    does next.

    Args:
        trainer: a ``transformers.Trainer``, before ``train()``.

    Raises:
        DistributedError: the ranks have no process group.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._train = trainer.train
        self._calls = 0
        self._run: FrameworkRun | None = None
        self._from: Path | None = None
        self._stops = False  # the job is drained
        self._due = False  # a checkpoint is, by the Trainer's arguments
        self._saved = -1  # step of the last one
        self._best: str | None = None  # the best one before it
        self._replicas: Replicas | None = None
        self._strategy: Any = None  # of the arguments, while it is another one
        self._limit: int | None = None  # of the arguments, while it is another one
        self._given = output_dir(trainer)
        self._place = place(joined(ADVICE), self._given)
        self._call: Place | None = self._place
        trainer.args.output_dir = str(self._place.folder)
        trainer.train = self.train

    def train(self, resume_from_checkpoint: Any = None, trial: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train as the Trainer does, from the newest complete checkpoint of this training; else as the script says.

        A training that ended before the ranks were restarted returns its result again. The trials of a hyperparameter
        search are not resumed: after a restart they are other ones.

        Raises:
            DistributedError: the ranks have no process group.
            Drained: the job was drained; a checkpoint was saved.
        """
        world, self._calls = joined(ADVICE), self._calls + 1
        self._call = self._place.nth_call(self._calls) if trial is None else None
        self._from = self._newest(world)
        if self._from:
            resume_from_checkpoint = str(self._from)
        elif resume_from_checkpoint is True:
            resume_from_checkpoint = self._earlier(world)
        if self._call and world.is_main:
            self._call.begin()
        try:
            with self._arguments(), FrameworkRun(world) as self._run:
                output = self._train(resume_from_checkpoint, trial, *args, **kwargs)
        except _Ended:
            return self._again(world)
        finally:
            self._run = None
        if self._call and world.is_main:
            self._call.end(result(output, self._trainer.state))
        return output

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Report where training starts."""
        run = self._running()
        run.plan.total_steps = state.max_steps
        run.plan.epochs = math.ceil(args.num_train_epochs) if args.max_steps <= 0 else None
        self._stops = self._due = False
        self._saved = state.global_step
        marker = Marker.read(self._from) if self._from else None
        if marker and (state.global_step >= state.max_steps or marker.limit == limit(state)):
            raise _Ended
        if marker and not getattr(args, "restore_callback_states_from_checkpoint", False):
            restore_callbacks(self._trainer.callback_handler.callbacks, state.stateful_callbacks)
        run.begin(state.global_step, position_note(marker, run.world.size))
        self._replicas = Replicas(self._trainer, run.world)
        if self._from and marker and marker.ranks == run.world.size:
            self._replicas.restore(self._from)
        if args.eval_on_start:
            run.evaluating()

    def on_step_begin(self, *_args: Any, **_: Any) -> None:
        """The batches of a step have been loaded."""
        self._running().world.heartbeat.beat(Phase.COMPUTING)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Exchange stop requests, and ask for a checkpoint if there is one; after an epoch's last step, at its end."""
        samples = args.train_batch_size * args.gradient_accumulation_steps
        epoch = max(math.ceil(state.epoch) - 1, 0)
        stop = self._running().step(state.global_step, epoch=epoch, samples=samples).stop
        self._stops = stop and not control.should_training_stop
        self._due = control.should_save
        if ends_epoch(self._trainer, state, control):
            control.should_save = False
        else:
            self._save(args, state, control)
        beat(self._running(), control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A checkpoint comes after an epoch's evaluation."""
        self._due = self._due or control.should_save
        self._save(args, state, control)
        beat(self._running(), control)

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Show what the Trainer logs."""
        numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, int | float)}
        if self._run:
            self._run.loss = numbers.pop("loss", self._run.loss)
            self._run.log({name: value for name, value in numbers.items() if name != "epoch"})

    def on_evaluate(self, args: Any, _state: Any, control: Any, **_: Any) -> None:
        """Training continues, or a checkpoint comes next."""
        if self._run:
            beat(self._run, control, may_save=args.save_strategy == SaveStrategy.BEST)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The Trainer has saved: mark the checkpoint as complete, and stop if the job is drained."""
        run, step = self._running(), state.global_step
        args.save_strategy, self._strategy = self._strategy or args.save_strategy, None
        due = self._due or (args.save_strategy == SaveStrategy.BEST and state.best_global_step == step)
        self._due, self._saved = False, step
        if self._call:
            if not due:
                state.best_model_checkpoint = self._best
            marker = Marker(
                step=step,
                ranks=run.world.size,
                accumulation=args.gradient_accumulation_steps,
                limit=limit(state) if control.should_training_stop else "",
            )
            folder = self._call.folder / f"{NAME}{step}"
            if self._replicas:
                self._replicas.save(folder)
            run.saved(folder, marker, (lambda path: path) if due else self._set_aside)
            if run.world.is_main:
                self._prune(state, before=step + 1 if due else step)
        if self._stops:
            run.drain(step)

    def on_train_end(self, *_args: Any, **_: Any) -> None:
        """Show the last step."""
        if self._run:
            self._run.end()

    def _running(self) -> FrameworkRun:
        assert self._run, "train() has not been called"
        return self._run

    def _save(self, args: Any, state: Any, control: Any) -> None:
        """Let the Trainer save, after its evaluation, if a checkpoint is due, at a drain, and at the end."""
        ends = control.should_training_stop and args.save_strategy != SaveStrategy.NO
        again = state.global_step == self._saved
        if again and not self._due and not control.should_evaluate:
            if self._stops:
                self._running().drain(state.global_step)
            return
        control.should_save = self._due or self._stops or ends
        if not control.should_save:
            return
        if again and self._call:  # that one lacks the evaluation
            if self._running().world.is_main:
                self._set_aside(self._call.folder / f"{NAME}{state.global_step}")
            self._running().world.barrier()
        self._best = state.best_model_checkpoint
        if args.save_strategy == SaveStrategy.BEST and control.should_evaluate:  # else only the best one is saved
            args.save_strategy, self._strategy = SaveStrategy.STEPS, args.save_strategy

    def _set_aside(self, checkpoint: Path) -> Path:
        """Rename a checkpoint that the Trainer would not have written, with its state: it is never the best one."""
        checkpoints.rewrite(checkpoint / STATE, lambda draft: self._trainer.state.save_to_json(str(draft)))
        return checkpoints.rename(checkpoint, f"{EXTRA}{self._trainer.state.global_step}")

    def _prune(self, state: Any, *, before: int) -> None:
        """Remove what the Trainer would, but only once a newer checkpoint is complete; extra ones before a step."""
        assert self._call
        folder = self._call.folder
        checkpoints.remove_older(folder, EXTRA, before)
        if self._limit:
            checkpoints.prune(folder, NAME, keep=self._limit, protected=state.best_model_checkpoint)

    @contextmanager
    def _arguments(self) -> Iterator[None]:
        """The Trainer's arguments while it trains: checkpoints are removed here, and evaluations not repeated."""
        args = self._trainer.args
        before = args.output_dir, args.save_total_limit, args.eval_on_start
        self._limit = args.save_total_limit
        if self._call:
            args.output_dir, args.save_total_limit = str(self._call.folder), None
        args.eval_on_start = args.eval_on_start and not self._from
        try:
            yield
        finally:
            args.output_dir, args.save_total_limit, args.eval_on_start = before

    def _newest(self, world: World) -> Path | None:
        """The checkpoint to continue from, the same on all ranks; the steps keep their samples if they can."""
        found = checkpoints.newest(self._call.folder, NAME, EXTRA) if self._call and world.is_main else None
        path = world.broadcast_value(str(found or ""), str)
        if not path:
            return None
        if accumulation := kept_accumulation(Marker.read(Path(path)), world.size):
            self._trainer.args.gradient_accumulation_steps = accumulation
        return Path(path)

    def _earlier(self, world: World) -> Any:
        """What ``resume_from_checkpoint=True`` means: this Trainer's last training, or what the script's folder has."""
        folder = self._place.nth_call(max(self._calls - 1, 1)).folder
        found = ""
        if world.is_main:
            last = get_last_checkpoint(self._given) if Path(self._given).is_dir() else None
            found = str(checkpoints.newest(folder, NAME, EXTRA) or last or "")
        return world.broadcast_value(found, str) or True

    def _again(self, world: World) -> TrainOutput:
        """The result of a training that ended before a restart: its last checkpoint has been loaded."""
        trainer, state = self._trainer, self._trainer.state
        assert self._call
        known = self._call.result if world.is_main else None
        found = json.loads(world.broadcast_value(json.dumps(known or result(None, state)), str))
        if trainer.args.load_best_model_at_end and state.best_model_checkpoint:
            trainer._load_best_model()  # noqa: SLF001  the Trainer has no public name for it
        if found["row"] and found["row"] not in state.log_history:
            state.log_history.append(found["row"])
        trainer._load_rng_state(str(self._from))  # noqa: SLF001  as above; the script may draw after training
        trainer.control = trainer.callback_handler.on_train_end(trainer.args, state, trainer.control)
        trainer.is_in_train = False
        world.print(f"training ended before the restart, after step {state.global_step}: it is not repeated")
        world.heartbeat.beat(Phase.FINISHING, step=state.global_step)
        return TrainOutput(state.global_step, found["loss"], found["metrics"])
