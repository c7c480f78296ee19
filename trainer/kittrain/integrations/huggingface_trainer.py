"""What the callback for Hugging Face reads and sets of a Trainer: its folder, its callbacks' states, and its result."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import TrainOutput

from kittrain.integrations import places
from kittrain.integrations.framework_run import FrameworkRun
from kittrain.integrations.places import Place
from kittrain.job.env import rank_env
from kittrain.rank.snapshots.files import tree
from kittrain.rank.world.distributed import World
from kittrain.rank.world.replica_state import ReplicaState
from kittrain.system import files

FOLDER: Final = "huggingface"  # in the snapshot folder: the first Trainer's place

_GIVEN: Final[list[tuple[Any, str]]] = []  # arguments of this process's Trainers, with the folder that the script gave


def output_dir(trainer: Any) -> str:
    """The folder that the script gave a Trainer; Trainers that share their arguments get a copy each."""
    given = next((name for args, name in _GIVEN if args is trainer.args), None)
    if given is not None:
        trainer.args = copy.copy(trainer.args)
    name = str(trainer.args.output_dir) if given is None else given
    _GIVEN.append((trainer.args, name))
    return name


def place(world: World, given: str) -> Place:
    """The place of a Trainer, the same on all ranks. Collective."""
    snapshots = rank_env().snapshot_dir
    root = snapshots / FOLDER if snapshots else Path(given)
    mine = places.take(root, given)
    return replace(mine, folder=Path(world.broadcast_value(str(mine.folder), str)))


def ends_epoch(trainer: Any, state: Any, control: Any) -> bool:
    """Whether a step is the last of its epoch."""
    stops = control.should_training_stop or control.should_epoch_stop
    return bool(stops or trainer.accelerator.gradient_state.end_of_dataloader or float(state.epoch).is_integer())


def beat(run: FrameworkRun, control: Any, *, may_save: bool = False) -> None:
    """Tell the agent what comes after a step, an evaluation or an epoch."""
    if control.should_evaluate:
        run.evaluating()
    elif control.should_save or may_save:
        run.saving()
    else:
        run.continues(ended=control.should_training_stop)


def limit(state: Any) -> str:
    """The limit of a training, for the marker of its end: with a larger one it continues."""
    return f"{state.max_steps} steps"


def restore_callbacks(callbacks: list[Any], states: Mapping[str, Any]) -> None:
    """Set the state of the script's callbacks, as that of early stopping; the Trainer does so only when asked to."""
    exportable = [one for one in callbacks if isinstance(one, ExportableState)]
    for name in {type(one).__name__ for one in exportable}:
        same = [one for one in exportable if type(one).__name__ == name]
        found = states.get(name, [])
        saved = found if isinstance(found, list) else [found]  # a list grows with every checkpoint
        for callback, state in zip(same, saved[-len(same) :], strict=False):
            vars(callback).update(state.get("attributes", {}))


class Replicas:
    """What a Trainer's DDP module keeps from step to step, in a file of each rank in a checkpoint.

    Args:
        trainer: whose model has been wrapped.
        world: all ranks.
    """

    def __init__(self, trainer: Any, world: World) -> None:
        self._file = f"kit-replica-{world.rank}"
        self._state = ReplicaState(lambda: {one: name for name, one in trainer.model.named_parameters()}, world.print)

    def restore(self, checkpoint: Path) -> None:
        """Continue with what a checkpoint of as many ranks has. Collective."""
        if (file := checkpoint / self._file).exists():
            self._state.restore(tree.load(file.read_bytes()))
        self._state.apply()

    def save(self, checkpoint: Path) -> None:
        """Write this rank's file. Collective."""
        if found := self._state.capture():
            files.write(checkpoint / self._file, tree.dump(found))


def result(output: TrainOutput | None, state: Any) -> dict[str, Any]:
    """What ``train()`` returns, in JSON's types; the loss is that of the log if the ranks ended before it returned."""
    history = state.log_history
    if output is None:
        losses = [row["loss"] for row in history if "loss" in row]
        mean = sum(losses) / len(losses) if losses else 0.0
        last: dict[str, Any] | None = {"train_loss": mean, "epoch": state.epoch, "step": state.global_step}
        return {"loss": mean, "metrics": {"train_loss": mean}, "row": last}
    metrics = {name: float(value) for name, value in output.metrics.items()}
    last = history[-1] if history and "train_runtime" in history[-1] else None
    return {"loss": float(output.training_loss), "metrics": metrics, "row": last}
