"""Training loops that are interrupted and resumed within one process group, so that many cases take little time.

Each rank makes its model, DDP module, optimizer and run anew, as a new process does.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from kittrain import Data, DDPOptions, Run, Step, Training, World, join
from kittrain.rank.world.rng import seed_all
from tests.trainer.loops import plain, settled
from tests.trainer.nodes import free_port
from tests.trainer.worlds import FORKS, finish, placed, start_processes_as_usual

STEPS: Final = 7
SECONDS: Final = 900.0  # on a busy machine
SMALL: Final = 1e-4  # MiB: a bucket for one or two parameters
Loop = Callable[["Trial"], nn.Module]  # trains, and returns the model


class Interrupted(Exception):
    """The run ends, as if all of its ranks had been killed."""


@dataclass
class Trial:
    """What a loop gets.

    Attributes:
        world: all ranks.
        every: steps between snapshots.
        stop: the step after which it is interrupted; None: it is not.
        losses: by step.
    """

    world: World
    every: int
    stop: int | None
    losses: dict[int, float] = field(default_factory=dict)

    def on_step(self, step: Step) -> None:
        """Record the loss, and stop in time."""
        self.losses[step.number] = step.loss
        if step.number == self.stop:
            raise Interrupted

    def data(self) -> Data:
        """STEPS batches an epoch."""
        generator = torch.Generator().manual_seed(3)
        size = 4 * self.world.size
        return Data(
            TensorDataset(*(torch.rand(STEPS * size, width, generator=generator) for width in (7, 2))), batch=size
        )

    def run(self, **objects: Any) -> Run:
        """A run around a loop."""
        return Run(self.world, snapshot_every=self.every, on_step=self.on_step, **objects)


class Net(nn.Module):
    """Uses its layers in another order than it makes them in, has dropout and a part in another type."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(11, 2)
        self.first = nn.Linear(7, 13)
        self.middle = nn.Linear(13, 11)
        self.scale = nn.Parameter(torch.ones(11, dtype=torch.float64))
        self.dropout = nn.Dropout(0.1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.dropout(self.middle(torch.tanh(self.first(inputs))))
        outputs: Tensor = self.last((hidden * self.scale).float())
        return outputs


class Heads(nn.Module):
    """Uses one of two layers, depending on a random number."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(7, 13)
        self.heads = nn.ModuleList([nn.Linear(13, 2), nn.Linear(13, 2)])

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.heads[int(torch.rand(()) < 0.5)](torch.tanh(self.body(inputs)))
        return outputs


class Unused(Net):
    """Leaves out its first parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.ones(3))
        self._parameters = dict(reversed(self._parameters.items()))


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs.float(), targets)


def fit(trial: Trial, *, model: Any = None, sharded: bool = False, **options: Any) -> nn.Module:
    """kitctl's own loop."""
    model = Net() if model is None else model
    if sharded:
        model.scale = nn.Parameter(torch.ones(11))  # FSDP2 takes one type
        for one in (model.first, model):
            fully_shard(one, mesh=init_device_mesh("cpu", (trial.world.size,)))

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        settled(training)
        return loss_of(model(batch[0]), batch[1])

    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    training = Training(
        trial.world,
        model,
        optimizer,
        loss,
        trial.data(),
        epochs=1,
        snapshot_every=trial.every,
        on_step=trial.on_step,
        **options,
    )
    training.fit()
    return model  # type: ignore[no-any-return]


def with_ddp(**options: Any) -> Loop:
    """kitctl's own loop with these options of DDP, and small buckets."""
    return lambda trial: fit(trial, ddp=DDPOptions(**{"bucket_cap_mb": SMALL, **options}))


def with_power_sgd(trial: Trial) -> nn.Module:
    """In one bucket: on CPUs, its collectives of several buckets are mixed up, with or without kitctl."""
    model = nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 11), nn.Tanh(), nn.Linear(11, 2))
    state = PowerSGDState(None, start_powerSGD_iter=3)
    return fit(trial, model=model, ddp=DDPOptions(comm_hook=powerSGD_hook, comm_state=state))


def loop(trial: Trial, *, model: nn.Module, given: nn.Module, wrap: Callable[[], nn.Module] | None = None) -> nn.Module:
    """A script's own loop, of two batches a step, with ``no_sync``.

    Args:
        trial: what it gets.
        model: to train, in DDP or not.
        given: to the run.
        wrap: makes the DDP module that is trained, once the run has begun.
    """
    optimizer = torch.optim.AdamW(given.parameters(), lr=0.05)
    data = trial.data()
    with trial.run(model=given, optimizer=optimizer, data=data) as run:
        used: Any = wrap() if wrap else model
        for _ in run.epochs(1):
            for batch in run.batches(data):
                inputs, targets = batch.samples
                optimizer.zero_grad()
                with used.no_sync():
                    loss_of(used(inputs[:1]), targets[:1]).backward()
                loss = loss_of(used(inputs[1:]), targets[1:])
                loss.backward()
                optimizer.step()
                settled(run).step(loss)
    return given


def ddp(model: nn.Module, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(model, bucket_cap_mb=SMALL, **options)


def wrapped(trial: Trial, *, compiled: bool = False, hook: Any = None) -> nn.Module:
    model = DistributedDataParallel(Net()) if compiled else ddp(Net())  # DDP's graphs are split at larger buckets only
    if hook:
        model.register_comm_hook(*hook())
    used: Any = torch.compile(model, backend="aot_eager") if compiled else model
    used.no_sync = model.no_sync
    return loop(trial, model=used, given=model)


def plain_module(trial: Trial) -> nn.Module:
    """The run gets the module in DDP; DDP was made before."""
    model = Net()
    return loop(trial, model=ddp(model), given=model)


def wrapped_later(trial: Trial) -> nn.Module:
    """DDP is made within the run."""
    model = Net()
    return loop(trial, model=model, given=model, wrap=lambda: ddp(model))


def static(trial: Trial, *, compiled: bool = False) -> nn.Module:
    """One backward pass a step, and one without gradients: DDP takes no accumulation with a static graph."""
    model = DistributedDataParallel(Net(), static_graph=True) if compiled else ddp(Net(), static_graph=True)
    used: Any = torch.compile(model, backend="aot_eager") if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    data = trial.data()
    with trial.run(model=model, optimizer=optimizer, data=data) as run:
        for _ in run.epochs(1):
            for batch in run.batches(data):
                inputs, targets = batch.samples
                optimizer.zero_grad(set_to_none=run.steps_done % 2 == 0)
                loss = loss_of(used(inputs), targets)
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    used(inputs)
                settled(run).step(loss)
    return model


def gan(trial: Trial, **options: Any) -> nn.Module:
    """Two modules of one kind; the second one is not trained in the first three steps."""
    models = {
        name: ddp(nn.Sequential(nn.Linear(7, 61), nn.Tanh(), nn.Linear(61, 2)), **options) for name in ("one", "two")
    }
    optimizers = {f"{name}_sgd": torch.optim.SGD(one.parameters(), lr=0.1) for name, one in models.items()}
    data = trial.data()
    with trial.run(**models, **optimizers, data=data) as run:
        batches = run.batches(data)
        for _ in run.steps(STEPS):
            inputs, targets = next(batches).samples
            loss = torch.zeros(())
            for name, model in models.items():
                if name == "one" or run.steps_done > 2:
                    loss = loss_of(model(inputs), targets)
                    optimizers[f"{name}_sgd"].zero_grad()
                    loss.backward()
                    optimizers[f"{name}_sgd"].step()
            settled(run).step(loss)
    return nn.ModuleList(models.values())


class Smoothing:
    """The state of a script's own hook: each rank adds its last gradient to the next one."""

    def __init__(self) -> None:
        self.last: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, Tensor]:
        return self.last

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.last = state


def smooth(state: Smoothing, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    key = str(bucket.index())
    gradients, last = bucket.buffer(), state.last.get(key)
    state.last[key] = gradients.clone()
    if last is not None and last.shape == gradients.shape:  # not before the buckets are final
        gradients += 0.1 * last
    return default_hooks.allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]


def smoothed(trial: Trial) -> nn.Module:
    def hook(state: Any, bucket: Any) -> Any:
        return smooth(state, bucket)

    hook.__annotations__.clear()  # DDP refuses those that are text
    return wrapped(trial, hook=lambda: (Smoothing(), hook))


LOOPS: Final[dict[str, Loop]] = {
    "fit": fit,
    "fit, small buckets": with_ddp(),
    "fit, copies": with_ddp(gradient_as_bucket_view=False),
    "fit, own buffers": with_ddp(broadcast_buffers=False),
    "fit, unused parameters": lambda trial: fit(
        trial, model=Heads(), ddp=DDPOptions(bucket_cap_mb=SMALL, find_unused_parameters=True)
    ),
    "fit, bf16": with_ddp(comm_hook=default_hooks.bf16_compress_hook),
    "fit, fp16": with_ddp(comm_hook=default_hooks.fp16_compress_hook),
    "fit, PowerSGD": with_power_sgd,
    "fit, static graph": with_ddp(static_graph=True),
    "fit, static graph, unused parameters": lambda trial: fit(
        trial, model=Unused(), ddp=DDPOptions(bucket_cap_mb=SMALL, static_graph=True, find_unused_parameters=True)
    ),
    "fit, accumulation and GradScaler": lambda trial: fit(
        trial, accumulate=2, autocast=torch.float16, max_grad_norm=0.5, ddp=DDPOptions(bucket_cap_mb=SMALL)
    ),
    "fit, sharded": lambda trial: fit(trial, sharded=True),
    "fit, virtual ranks": lambda trial: fit(trial, model=Heads(), virtual_ranks=4),
    "Run": wrapped,
    "Run, compiled": lambda trial: wrapped(trial, compiled=True),
    "Run, plain module": plain_module,
    "Run, DDP made later": wrapped_later,
    "Run, static graph": static,
    "Run, static graph, compiled": lambda trial: static(trial, compiled=True),
    "Run, GAN": gan,
    "Run, GAN, static graphs": lambda trial: gan(trial, static_graph=True),
    "Run, a hook with a state": smoothed,
}


def interrupt(names: Sequence[str], folder: Path, *, size: int, steps: Sequence[int]) -> list[Any]:
    """Run loops undisturbed, and resumed after each of some steps; returns each rank's results by loop and step.

    The step of the undisturbed run is 0.
    """
    port, ranks = free_port(), []
    for rank in range(size):
        env = {**placed(rank, size, port), "KIT_BACKEND": "gloo"}
        ranks.append(FORKS.Process(target=_rank, args=(list(names), env, folder, steps)))
        ranks[-1].start()
    assert [finish(rank, SECONDS) for rank in ranks] == [0] * size
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(size)]


def _rank(names: Sequence[str], env: dict[str, str], folder: Path, steps: Sequence[int]) -> None:
    os.environ.update(env)
    start_processes_as_usual()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with join() as world:
        for name in names:
            results[name] = {step: _end(name, world, folder / f"{len(results)}-{step}", step) for step in (0, *steps)}
    torch.save(results, folder / f"{world.rank}.pt")


def _end(name: str, world: World, folder: Path, step: int) -> dict[str, Any]:
    """The end of a loop that was resumed after this step."""
    log = io.StringIO()
    world = replace(world, env=replace(world.env, snapshot_dir=folder))
    with redirect_stdout(log):
        for stop in (*stops(name, step), None):
            seed_all(1)
            trial = Trial(world, every=step or 2, stop=stop)
            with suppress(Interrupted):
                model = LOOPS[name](trial)
    return {"state": plain(model.state_dict()), "losses": trial.losses, "log": log.getvalue()}


def stops(name: str, step: int) -> tuple[int, ...]:
    """The steps at which it is interrupted so that it resumes after this one, with what was saved then.

    Of a static graph DDP knows the order after two steps, so one that is interrupted after each step has no such two.
    """
    if step == 1:
        return (3, 4) if "static" in name else (3,)
    return (step + 3,) if step else ()
