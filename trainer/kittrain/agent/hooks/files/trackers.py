"""One run in each tracker, however often the ranks start: W&B's id, MLflow's run, TensorBoard's folder and its purge.

On rank 0 alone, and never over what the script or its variables say. The first run of each start of a script is the
same one, its second run the second one, and so on. What a tracker names itself is recorded next to the run's history.
Nothing is imported or written before the script imports the tracker and uses it.

Why: decision 57.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.system.imports import after_import

FILE: Final = "trackers.json"
WANDB_SET: Final = ("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID")  # variables by which a user chooses the run
LIGHTNING: Final = (
    "lightning.pytorch.loggers.tensorboard",
    "lightning.fabric.loggers.tensorboard",
    "pytorch_lightning.loggers.tensorboard",
)
NEXT_VERSION: Final = "_get_next_version"
PARENT: Final = "mlflow.parentRunId"  # the tag of a run within another one
MARKED: Final = "kittrain_marked"  # of a writer of events
CHANGED: Final = "Changing param values is not allowed"  # MLflow's words, of a parameter with another value


class Record:
    """What earlier starts of this run's ranks have recorded, and this one does. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder else None
        self.earlier = self._read()
        self._all = self._read()

    def of(self, tracker: str, key: str) -> Any:
        """What an earlier start has recorded; None: nothing."""
        found = self.earlier.get(tracker)
        return found.get(key) if isinstance(found, dict) else None

    def put(self, tracker: str, key: str, value: Any) -> None:
        """Record it; a volume that does not take it costs the next start its run."""
        if self._path is None:
            return
        self._all = {**self._all, tracker: {**self._all.get(tracker, {}), key: value}}
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self._path.with_name(f".{FILE}-{os.getpid()}")
            scratch.write_text(json.dumps(self._all))
            scratch.replace(self._path)

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_bytes()) if self._path else {}
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) and all(isinstance(one, dict) for one in found.values()) else {}


def watch(steps: Callable[[], int], environ: Mapping[str, str] = os.environ) -> None:
    """Do so in this process, if it is rank 0; ``steps`` are those that its optimizers have taken."""
    if environ.get("RANK", "0") != "0":
        return

    @functools.cache
    def record() -> Record:
        from kittrain.job.env import rank_env  # noqa: PLC0415  only where a tracker is used

        return Record(rank_env(environ).history_folder)

    run = re.sub(r"[^A-Za-z0-9_-]", "-", environ.get("KIT_RUN_ID") or "")
    if run:
        after_import("wandb", lambda module: _watch_wandb(module, run))
    after_import("mlflow.tracking.client", lambda module: _watch_mlflow(module, record))
    for name in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        after_import(name, lambda module: _watch_tensorboard(module, record, steps))
    for name in LIGHTNING:
        after_import(name, lambda module: _keep_version(module, record))


def _watch_wandb(module: ModuleType, run: str) -> None:
    init: Callable[..., Any] | None = getattr(module, "init", None)
    if not inspect.isfunction(init):
        return
    signature, begun = inspect.signature(init), 0

    @in_place_of(init)
    def one_run(*args: Any, **kwargs: Any) -> Any:
        nonlocal begun
        with suppress(TypeError):
            given = signature.bind_partial(*args, **kwargs).arguments
            if _wandb_is_free(module, given):
                begun += 1
                number = f"{run}-{begun}" if begun > 1 else run
                return _init(init, args, {**kwargs, "id": number, **_wandb_resume(given)}, kwargs)
        return init(*args, **kwargs)

    module.init = one_run  # type: ignore[attr-defined]


def _init(init: Callable[..., Any], args: tuple[Any, ...], ours: dict[str, Any], kwargs: dict[str, Any]) -> Any:
    try:
        return init(*args, **ours)
    except Exception as error:
        if "deleted" not in str(error):  # by its user, on the server: the id cannot be used again
            raise
        return init(*args, **kwargs)


def _wandb_is_free(module: Any, given: Mapping[str, Any]) -> bool:
    """Whether nobody has chosen the run that begins now."""
    if any(os.environ.get(name) for name in WANDB_SET):
        return False
    if getattr(module, "run", None) is not None and not given.get("reinit"):
        return False  # wandb returns that one
    settings = given.get("settings")
    chosen = settings.get("run_id") if isinstance(settings, dict) else getattr(settings, "run_id", None)
    named = any(given.get(name) for name in ("id", "resume_from", "fork_from")) or given.get("resume") not in {
        None,
        "allow",
    }
    return not (chosen or named)


def _wandb_resume(given: Mapping[str, Any]) -> dict[str, str]:
    """Offline it has no effect but a warning."""
    offline = (given.get("mode") or os.environ.get("WANDB_MODE")) in {"offline", "dryrun", "disabled"}
    return {} if offline else {"resume": "allow"}


def _watch_mlflow(module: ModuleType, record: Callable[[], Record]) -> None:
    client = getattr(module, "MlflowClient", None)
    if client is None or not all(hasattr(client, name) for name in ("create_run", "log_batch", "log_param")):
        return
    resumed: set[str] = set()
    client.create_run = _one_mlflow_run(client.create_run, record, resumed)
    _ignore_changed_params(client, resumed)


def _one_mlflow_run(create: Callable[..., Any], record: Callable[[], Record], resumed: set[str]) -> Callable[..., Any]:
    """MLflow takes no id that it did not give: the ids of the first start's runs are recorded."""
    begun = Counter[str]()

    @in_place_of(create)
    def one_run(client: Any, experiment_id: str, *args: Any, **kwargs: Any) -> Any:
        tags = kwargs.get("tags") or {}
        name = kwargs.get("run_name") or tags.get("mlflow.runName") or ""
        parent = tags.get(PARENT, "")
        if parent and (not name or record().of("mlflow", f"2 {experiment_id} {parent} {name}")):
            # Trials, of which a script that resumes may leave out those that it has done.
            return create(client, experiment_id, *args, **kwargs)
        about = f"{experiment_id} {parent} {name}"
        begun[about] += 1
        key = f"{begun[about]} {about}"
        if (former := record().of("mlflow", key)) and (found := _former_run(client, former)):
            resumed.add(former)
            return found
        run = create(client, experiment_id, *args, **kwargs)
        with suppress(Exception):
            record().put("mlflow", key, run.info.run_id)
        return run

    return one_run


def _former_run(client: Any, former: str) -> Any:
    """The run, running again; None if it was deleted, or is in another store."""
    try:
        if client.get_run(former).info.lifecycle_stage != "active":
            return None
        client.update_run(former, status="RUNNING")
        return client.get_run(former)
    except Exception:  # noqa: BLE001  whatever its store says: a new run begins
        return None


def _ignore_changed_params(client: Any, resumed: set[str]) -> None:
    """Of a resumed run, parameters with another value stay as they were: the script would end with an error."""
    log_batch, log_param = client.log_batch, client.log_param

    def expected(run_id: str, error: Exception) -> bool:
        if run_id not in resumed or CHANGED not in str(error):
            return False
        first = str(error).partition("\n")[0]
        sys.stderr.write(f"warning: mlflow: {first[:300]}; it keeps its first value, as the run is that of before\n")
        return True

    @in_place_of(log_batch)
    def batch(self: Any, run_id: str, metrics: Any = (), params: Any = (), tags: Any = (), **kwargs: Any) -> Any:
        try:
            return log_batch(self, run_id, metrics, params, tags, **kwargs)
        except Exception as error:
            if not expected(run_id, error):
                raise
        for one in params:
            with suppress(Exception):
                log_batch(self, run_id, params=[one], **kwargs)
        return log_batch(self, run_id, metrics, (), tags, **kwargs)

    @in_place_of(log_param)
    def param(self: Any, run_id: str, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return log_param(self, run_id, key, value, *args, **kwargs)
        except Exception as error:
            if not expected(run_id, error):
                raise
            return value

    client.log_batch, client.log_param = batch, param


def _watch_tensorboard(module: ModuleType, record: Callable[[], Record], steps: Callable[[], int]) -> None:
    writer, files = getattr(module, "SummaryWriter", None), getattr(module, "FileWriter", None)
    if writer is None or files is None or not hasattr(files, "add_event"):
        return
    _keep_folder(writer, record)
    _purge(files, record, steps)


def _keep_folder(writer: Any, record: Callable[[], Record]) -> None:
    """Without a folder the writer names one by the time: later starts have the first one's."""
    init, begun = writer.__init__, 0

    @in_place_of(init)
    def same_folder(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal begun
        named = (args[0] if args else kwargs.get("log_dir", kwargs.get("logdir"))) is not None
        if named or args:
            init(self, *args, **kwargs)
            return
        begun += 1
        key = f"{begun} {kwargs.get('comment', '')}"
        former = record().of("folders", key)
        init(self, *args, **{**kwargs, "log_dir": former} if former and Path(former).is_dir() else kwargs)
        with suppress(Exception):
            record().put("folders", key, str(Path(self.get_logdir()).absolute()))

    writer.__init__ = same_folder


def _keep_version(module: ModuleType, record: Callable[[], Record]) -> None:
    """Lightning's logger numbers its folders, a new one for each start."""
    logger: Any = getattr(module, "TensorBoardLogger", object)
    following, begun = vars(logger).get(NEXT_VERSION), Counter[str]()
    if following is None:
        return

    @in_place_of(following)
    def same_version(self: Any) -> Any:
        version = following(self)
        with suppress(Exception):
            where = f"{Path(self.root_dir).absolute()} {self.name}"
            begun[where] += 1
            key = f"{begun[where]} {where}"
            if isinstance(former := record().of("versions", key), int) and former < version:
                return former
            record().put("versions", key, version)
        return version

    setattr(logger, NEXT_VERSION, same_version)


def _purge(files: Any, record: Callable[[], Record], steps: Callable[[], int]) -> None:
    """Mark in the events where the ranks resumed: TensorBoard then hides what former starts wrote from there on.

    That is the first step that this start writes. Only if it may be a number of optimizer steps, of which this start
    has taken some: a writer may count in epochs, too, and much would be hidden.
    """
    add_event = files.add_event

    @in_place_of(add_event)
    def marked(self: Any, event: Any, step: Any = None, walltime: Any = None) -> Any:
        if step is not None and not hasattr(self, MARKED):
            with suppress(Exception):
                _mark(self, event, int(step))
        return add_event(self, event, step, walltime)

    def _mark(self: Any, event: Any, step: int) -> None:
        taken = steps()
        if step < 1 or not taken:
            return
        setattr(self, MARKED, True)
        folder = str(Path(self.get_logdir()).absolute())
        if record().of("events", folder) and step + 1 >= taken:
            mark = type(event)()
            mark.step, mark.session_log.status = step, 1  # START
            add_event(self, mark, step)
        record().put("events", folder, value=True)

    files.add_event = marked
