"""Training loops of scripts, each with a run around it, and how to run one of them on real ranks."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from kittrain import Data, DDPOptions, Run, Step, Training, World, join
from kittrain.rank.world.rng import seed_all
from tests.trainer.nodes import free_port
from tests.trainer.worlds import FORKS, finish, placed, start_processes_as_usual

EPOCHS = 2
STEPS = 16  # of all epochs; 15 of fit()
DIVIDED_SAMPLES = 103
SAMPLES = 48  # 8 batches an epoch on each rank, of 2 on 3 ranks
Loop = Callable[["Bench"], nn.Module]  # trains, and returns what is compared


@dataclass
class Bench:
    """What a loop gets.

    Attributes:
        world: all ranks.
        dies_at: the step after which the last rank is killed; None: never.
        losses: of the steps, by number.
        taken: this rank's samples in the steps, by number, of loops that record them.
    """

    world: World
    dies_at: int | None = None
    losses: dict[int, float] = field(default_factory=dict)
    taken: dict[int, list[int]] = field(default_factory=dict)

    def run(self, **objects: Any) -> Run:
        """A run with these objects, with a snapshot every second step."""
        return Run(self.world, snapshot_every=2, on_step=self.on_step, **objects)

    def on_step(self, step: Step) -> None:
        """Record its loss and its samples, and die if it is time."""
        self.losses[step.number] = step.loss
        if step.number in self.taken:
            self._record(step)
        if step.number == self.dies_at and self.world.rank == self.world.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def _record(self, step: Step) -> None:
        assert self.world.env.snapshot_dir
        facts = {
            "generation": step.generation,
            "step": step.number,
            "epoch": step.epoch,
            "ids": self.taken[step.number],
        }
        path = self.world.env.snapshot_dir.with_name(f"taken-{self.world.size}-{self.world.rank}.jsonl")
        with path.open("a") as file:
            file.write(json.dumps(facts) + "\n")


def settled(run: Any) -> Any:
    """Wait until the last snapshot is written, as if a step took longer than writing."""
    while not run._session.message().written:
        time.sleep(0.001)
    return run


def samples() -> TensorDataset:
    """Inputs (SAMPLES, 5) and targets (SAMPLES, 1)."""
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(*(torch.rand(SAMPLES, width, generator=generator) for width in (5, 1)))


class Noisy(Dataset[Any]):
    """Adds random numbers to its samples."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, targets = samples()[index]
        return inputs + torch.rand(5) + random.random(), targets


class Stream(IterableDataset[Any]):
    """A rank's samples, one after the other."""

    def __init__(self, world: World) -> None:
        self._ids = range(world.rank, SAMPLES, world.size)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return (samples()[index] for index in self._ids)


class StatefulStream(Stream):
    """Knows where it is."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._next = 0
        self.loaded = 0

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        while self._next < len(self._ids):
            self._next += 1
            self.loaded += 1
            yield samples()[self._ids[self._next - 1]]
        self._next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._next = state["next"]


def network() -> nn.Module:
    """With dropout, which draws from the global generator."""
    return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))


class Branches(nn.Module):
    """Uses one of two layers, depending on a random number; the other one gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(5, 1), nn.Linear(5, 1), nn.Linear(5, 1)])

    def forward(self, inputs: Tensor) -> Tensor:
        chosen = self.layers[1 + int(torch.rand(()) < 0.5)]
        outputs: Tensor = self.layers[0](inputs) + chosen(inputs)
        return outputs


def loader_of(
    bench: Bench, dataset: Dataset[Any] | None = None, *, mesh: DeviceMesh | None = None, **options: Any
) -> DataLoader[Any]:
    """The samples of a rank; with a mesh of one dimension, those of a place in it."""
    dataset = dataset or samples()
    size, rank = (mesh.size(), mesh.get_local_rank()) if mesh else (bench.world.size, bench.world.rank)
    count = SAMPLES
    if not isinstance(dataset, IterableDataset):
        count = len(dataset)  # type: ignore[arg-type]
        options["sampler"] = DistributedSampler(dataset, size, rank, seed=4)
    return DataLoader(dataset, batch_size=count * EPOCHS // STEPS // size, **options)


def tutorial(
    bench: Bench,
    model: nn.Module,
    loader: DataLoader[Any],
    *,
    micro: int = 1,
    scaler: Any = None,
    forward: Callable[[Tensor], Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    **objects: Any,
) -> nn.Module:
    """A tutorial's loop, with accumulation of ``micro`` batches, clipping, and autocast if there is a scaler."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    with bench.run(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, **objects) as run:
        for _ in run.epochs(EPOCHS * micro):
            for number, (inputs, targets) in enumerate(run.batches(loader), 1):
                last = number % micro == 0
                with nullcontext() if last else model.no_sync():  # type: ignore[operator]
                    with torch.autocast("cpu", enabled=scaler is not None):
                        loss = (
                            functional.mse_loss((model if forward is None else forward)(inputs).float(), targets)
                            / micro
                        )
                    (scaler.scale(loss) if scaler else loss).backward()
                if not last:
                    continue
                if scaler:
                    scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                (scaler or _NoScaler).step(optimizer)
                if scaler:
                    scaler.update()
                optimizer.zero_grad()
                scheduler.step()
                if "average" in objects:
                    objects["average"].update_parameters(model)
                settled(run).step(loss, samples=len(inputs))
    return nn.ModuleList([model, *(one for one in objects.values() if isinstance(one, nn.Module))])


class _NoScaler:
    @staticmethod
    def step(optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()


def ddp(model: nn.Module | None = None, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(model or network(), **options)


def gan(bench: Bench) -> nn.Module:
    """Two modules, two optimizers, and a generator of noise on each rank."""
    maker, judge = ddp(nn.Linear(2, 5)), ddp(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1)))
    optimizers = [torch.optim.Adam(one.parameters(), lr=0.02) for one in (maker, judge)]
    noise = torch.Generator().manual_seed(bench.world.rank)
    loader = loader_of(bench)
    with bench.run(maker=maker, judge=judge, maker_sgd=optimizers[0], judge_sgd=optimizers[1], noise=noise) as run:
        for _ in run.epochs(EPOCHS):
            for real, _ in run.batches(loader):
                drawn = torch.randn(3, 2, generator=noise)
                judged = (
                    functional.softplus(judge(maker(drawn).detach())).mean() + functional.softplus(-judge(real)).mean()
                )
                optimizers[1].zero_grad()
                judged.backward()
                optimizers[1].step()
                made = functional.softplus(-judge(maker(drawn))).mean()
                optimizers[0].zero_grad()
                made.backward()
                optimizers[0].step()
                settled(run).step(made + judged)
    return nn.ModuleList([maker, judge])


def sharded(bench: Bench) -> nn.Module:
    """FSDP2 with mixed precision."""
    model = network()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh("cpu", (bench.world.size,))
    for one in (model[0], model):  # type: ignore[index]
        fully_shard(one, mesh=mesh, mp_policy=policy)
    return tutorial(bench, model, loader_of(bench))


def tensor_parallel(bench: Bench) -> nn.Module:
    """FSDP2 over a mesh of 2 dimensions: each shard is divided by tensor parallelism; both parts see its samples."""
    model = network()
    mesh = shard_over_tensor(model, bench.world.size)
    return tutorial(bench, model, loader_of(bench, mesh=mesh["shard"]))


def hybrid(bench: Bench) -> nn.Module:
    """FSDP2 over a mesh of 2 dimensions: replicas of a sharded model."""
    model = network()
    shard_in_replicas(model, bench.world.size)
    return tutorial(bench, model, loader_of(bench, ConcatDataset([samples(), samples()])))


def shard_over_tensor(model: nn.Module, size: int) -> DeviceMesh:
    """Tensor parallelism between 2 ranks each, FSDP2 between the others; returns the mesh."""
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("shard", "tensor"))
    layers = [name for name, one in model.named_children() if isinstance(one, nn.Linear)]
    parallelize_module(model, mesh["tensor"], dict(zip(layers, (ColwiseParallel(), RowwiseParallel()), strict=True)))
    for one in (*model.children(), model):
        fully_shard(one, mesh=mesh["shard"])
    return mesh


def shard_in_replicas(model: nn.Module, size: int) -> None:
    """FSDP2 between 2 ranks each, replicated over the others."""
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicate", "shard"))
    for one in (*model.children(), model):
        fully_shard(one, mesh=mesh)


def whole_batches(bench: Bench, *, wrap: Callable[[nn.Module, int], object]) -> nn.Module:
    """Each step takes all samples on each rank, so steps are the same however the model is wrapped."""
    model: nn.Module = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    wrapped = wrap(model, bench.world.size)
    model = wrapped if isinstance(wrapped, nn.Module) else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    inputs, targets = samples().tensors
    with bench.run(model=model, optimizer=optimizer) as run:
        for _ in run.steps(STEPS):
            loss = functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            settled(run).step(loss)
    return model


def compiled(bench: Bench) -> nn.Module:
    model = ddp()
    return tutorial(bench, model, loader_of(bench), forward=torch.compile(model, backend="aot_eager"))


def averaged(bench: Bench) -> nn.Module:
    """An exponential moving average of the weights."""
    model = ddp()
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    return tutorial(bench, model, loader_of(bench), average=average)


def steps(bench: Bench) -> nn.Module:
    """Without epochs: random batches, drawn by the loop itself, and those of a loader, pass after pass."""
    torch.manual_seed(bench.world.rank)
    model = ddp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    everything, _ = samples().tensors
    with bench.run(model=model, optimizer=optimizer) as run:
        batches = run.batches(DataLoader(samples(), batch_size=3, shuffle=True))
        for _ in run.steps(STEPS):
            inputs, targets = next(batches)
            drawn = everything[torch.randint(SAMPLES, (2,))]
            loss = functional.mse_loss(model(inputs), targets) + model(drawn).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            settled(run).step(loss)
    return model


def counted(bench: Bench) -> nn.Module:
    """kitctl's own data, of which each sample counts once."""
    model = ddp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = Data(Noisy(), batch=6, workers=1)
    with bench.run(model=model, optimizer=optimizer, data=data) as run:
        for _ in run.epochs(EPOCHS):
            for batch in run.batches(data):
                inputs, targets = batch.samples
                loss = functional.mse_loss(model(inputs), targets) * batch.weight
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                settled(run).step(loss)
    return model


def divided(bench: Bench) -> nn.Module:
    """A global batch of 12, in 2 micro-batches on each rank, whatever the number of ranks; records its samples."""
    size, rank = bench.world.size, bench.world.rank
    ids = TensorDataset(torch.arange(float(DIVIDED_SAMPLES)).unsqueeze(1))
    loader = DataLoader(ids, batch_size=6 // size, sampler=DistributedSampler(ids, size, rank), num_workers=1)
    model = nn.Linear(1, 1) if size == 1 else ddp(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with bench.run(model=model, optimizer=optimizer) as run:
        for _ in run.epochs(EPOCHS):
            taken: list[int] = []
            for number, (batch,) in run.enumerate(loader):
                taken += batch.flatten().int().tolist()
                loss = model(batch).mean() / 2
                loss.backward()
                if number % 2 == 1 or number + 1 == len(loader):
                    optimizer.step()
                    optimizer.zero_grad()
                    bench.taken[run.steps_done + 1], taken = taken, []
                    settled(run).step(loss)
    return model


def shuffled(bench: Bench) -> nn.Module:
    """Each rank shuffles all samples, and its workers stay for the next epoch."""
    loader = DataLoader(Noisy(), batch_size=6, shuffle=True, num_workers=1, persistent_workers=True)
    return tutorial(bench, ddp(find_unused_parameters=True), loader)  # DDP keeps its buckets then


def hooked(bench: Bench) -> nn.Module:
    model = ddp()
    model.register_comm_hook(None, bf16_compress_hook)
    return tutorial(bench, model, loader_of(bench))


def fit(bench: Bench, *, sharded: bool = False, dropout: bool = True, **options: Any) -> nn.Module:
    """kitctl's own loop."""
    model = network() if dropout else nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    if sharded:
        fully_shard(model, mesh=init_device_mesh("cpu", (bench.world.size,)))
    data = Data(samples(), batch=10)  # 10, 10, 10, 10 and 8
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)

    def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
        settled(training)
        return functional.mse_loss(model(batch[0]).float(), batch[1])

    training = Training(
        bench.world, model, optimizer, loss, data, epochs=3, snapshot_every=2, on_step=bench.on_step, **options
    )
    training.fit()
    return model


ALL_OPTIONS: dict[str, Any] = {
    "accumulate": 2,
    "max_grad_norm": 0.1,
    "autocast": torch.bfloat16,
    "evaluate_every": 4,
    "on_evaluate": lambda _: {"drawn": torch.rand(()).item()},
}
FITS: dict[str, Loop] = {
    "whole": lambda bench: fit(bench, dropout=False),
    "accumulated": lambda bench: fit(bench, dropout=False, accumulate=2),
    "accumulated, unused parameters": lambda bench: fit(
        bench, dropout=False, accumulate=3, ddp=DDPOptions(find_unused_parameters=True)
    ),
    "accumulated, sharded": lambda bench: fit(bench, dropout=False, accumulate=3, sharded=True),
}  # all with the same result
MESHES: dict[str, Loop] = {
    "alone": lambda bench: whole_batches(bench, wrap=lambda model, _: model),
    "DDP": lambda bench: whole_batches(bench, wrap=lambda model, _: ddp(model)),
    "sharded": lambda bench: whole_batches(bench, wrap=lambda model, _: fully_shard(model)),
    "sharded and tensor parallel": lambda bench: whole_batches(bench, wrap=shard_over_tensor),
    "sharded and replicated": lambda bench: whole_batches(bench, wrap=shard_in_replicas),
}  # all with the same steps, up to rounding
LOOPS: dict[str, Loop] = {
    "fit with all options": lambda bench: fit(bench, **ALL_OPTIONS),
    "ddp": lambda bench: tutorial(bench, ddp(), loader_of(bench)),
    "accumulation with no_sync": lambda bench: tutorial(bench, ddp(), loader_of(bench), micro=2),
    "autocast and GradScaler": lambda bench: tutorial(
        bench, ddp(), loader_of(bench), scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    ),
    "compiled": compiled,
    "sharded, mixed precision": sharded,
    "GAN": gan,
    "moving average": averaged,
    "unused parameters": lambda bench: tutorial(bench, ddp(Branches(), find_unused_parameters=True), loader_of(bench)),
    "static graph": lambda bench: tutorial(bench, ddp(static_graph=True), loader_of(bench)),
    "communication hook": hooked,
    "steps": steps,
    "Data": counted,
    "random samples": lambda bench: tutorial(bench, ddp(), loader_of(bench, Noisy())),
    "workers": lambda bench: tutorial(bench, ddp(), loader_of(bench, Noisy(), num_workers=1)),
    "persistent workers": lambda bench: tutorial(
        bench, ddp(), loader_of(bench, Noisy(), num_workers=1, persistent_workers=True)
    ),
    "stream": lambda bench: tutorial(bench, ddp(), loader_of(bench, Stream(bench.world))),
    "stream with a state": lambda bench: tutorial(bench, ddp(), loader_of(bench, StatefulStream(bench.world))),
}
LOOPS_OF_3_RANKS: dict[str, Loop] = {"persistent workers, shuffled": shuffled}
LOOPS_OF_4_RANKS: dict[str, Loop] = {
    "sharded and tensor parallel, samples": tensor_parallel,
    "sharded and replicated, samples": hybrid,
}
ALL_LOOPS: Final = {**LOOPS, **LOOPS_OF_3_RANKS, **LOOPS_OF_4_RANKS, **FITS, **MESHES, "divided": divided}


def train(name: str, folder: Path, parts: dict[str, int | None], *, size: int = 2) -> list[int | None]:
    """Run a loop on new ranks, one after the other in these subfolders; returns the exit codes.

    Each rank leaves ``result-RANK.pt`` in a subfolder, and appends to ``log-RANK``.

    Args:
        name: of the loop.
        folder: for everything.
        parts: after which step the last rank is killed (None: never), by subfolder.
        size: number of ranks.
    """
    port = free_port()
    ranks = []
    for rank in range(size):
        env = {**placed(rank, size, port), "KIT_BACKEND": "gloo"}
        ranks.append(FORKS.Process(target=_rank, args=(name, env, folder, parts)))  # no daemon: it may have workers
        ranks[-1].start()
    return [finish(rank) for rank in ranks]


def _rank(name: str, env: dict[str, str], folder: Path, parts: dict[str, int | None]) -> None:
    os.environ.update(env)
    start_processes_as_usual()
    torch.set_num_threads(1)
    with (folder / f"log-{env['RANK']}").open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    with join() as world:
        for part, dies_at in parts.items():
            seed_all(1)
            env_of_part = replace(world.env, snapshot_dir=folder / part / "snapshots")
            bench = Bench(world=replace(world, env=env_of_part), dies_at=dies_at)
            (folder / part).mkdir(exist_ok=True)
            state = plain(ALL_LOOPS[name](bench).state_dict())
            torch.save({"losses": bench.losses, "state": state}, folder / part / f"result-{world.rank}.pt")


def plain(state: dict[str, Any]) -> dict[str, Tensor]:
    """Whole tensors, if they are sharded."""
    return {name: one.full_tensor() if hasattr(one, "full_tensor") else one for name, one in state.items()}
