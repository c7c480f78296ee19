"""Each note reaches a rank's output at the end of a script that has what it tells of, and no other script's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kittrain.outcome.rank_output import (
    ANOTHER_MODEL,
    CHANGED_NOTHING,
    CLIPPED_SCALED,
    FADED,
    LEFT_GRADIENTS,
    NEVER_ZEROED,
    NEW_SCHEDULE,
    NO_BATCH_SEEN,
    NOT_GIVEN,
    NOT_OPTIMIZED,
    NOT_REGISTERED,
    NOT_RESUMED,
    NOTES,
    NOTHING_LOADED,
    OWN_LOADED,
    PROBABILITIES,
    REPLAYED,
    RESUMED_ALONE,
    SAME_DRAWS,
    SAME_ORDER,
    SAME_SAMPLES,
    STILL_EVALUATES,
    STILL_TRAINS,
    TAKEN_FOR_TRUE,
    UNAVERAGED,
    UNSEEN_CHANGE,
    WARNED,
    ZEROED_UNUSED,
)
from tests.trainer.hooked import run_warm, start_warm
from tests.trainer.nodes import free_port

BEGIN: Final = """
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(16, 4)
def passed():
    model(torch.randn(2, 4)).sum().backward()
def step():
    optimizer.zero_grad()
    passed()
    optimizer.step()
"""
GROUP: Final = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(12):
    model.require_backward_grad_sync = i % 4 == {exchanged}
    passed()
    if i % 4 == 3:
        optimizer.step()
"""
LAYERS: Final = """
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
class Net(torch.nn.Module):
    def __init__(self, container):
        super().__init__()
        self.first, self.rest = torch.nn.Linear(4, 4), container([torch.nn.Linear(4, 4)])
    def forward(self, x):
        return self.rest[0](self.first(x))
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(Net({container}))
{change}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    with model.no_sync():  # the group of this test exchanges nothing
        step()
"""
EVALUATED: Final = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step()
{first}
with torch.no_grad():
    model(data), model(data)
"""
DIVERGED: Final = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 + {more} * dist.get_rank())
for _ in range(16):
    step()
"""
REPLACED: Final = """
import torch.distributed as dist
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.head(self.body(x))
model = Net()
{early}
model.head = torch.nn.Linear(4, 2)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
{late}
for _ in range(8):
    step()
"""
AVERAGED: Final = """
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
import copy
average = copy.deepcopy(model)
for _ in range(4):
    step()
    with torch.no_grad():
        for old, new in zip(average.{of}, model.{of}):
            old.lerp_(new, 0.5) if old.is_floating_point() else old.copy_(new)
average.eval()
with torch.no_grad():
    average(data)
"""
RESUMED: Final = """
for i in range(2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    if i:
        optimizer.load_state_dict(saved)
        {load}
    for _ in range(3):
        step()
        schedule.step()
    saved, state = optimizer.state_dict(), schedule.state_dict()
"""
RESUMED_WITHOUT: Final = """
for i in range(2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 9, gamma=0.5)
    if i:
        schedule.load_state_dict(state)
        {load}
    for _ in range(3):
        step()
        schedule.step()
    state, before = schedule.state_dict(), optimizer.state_dict()
"""
WORKERS: Final = """
class Augmented(Dataset):
    epoch = 0
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(4) * self.epoch
augmented = Augmented()
loader = DataLoader(augmented, num_workers=1, persistent_workers={persistent})
for epoch in range(2):
    augmented.epoch = epoch
    for _ in loader:
        step()
"""
DRAWN: Final = """
import random
class Drawn(Dataset):
    def __init__(self):
        self.rng = random.Random(0)
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(4) * self.rng.random()
loader = DataLoader(Drawn(), num_workers=1, shuffle={shuffle})
for epoch in range(2):
    for _ in loader:
        step()
"""
PASSES: Final = """
sampler = DistributedSampler(data, num_replicas=2, rank=0)
for epoch in range(3):
    {chosen}
    for _ in {passes}:
        step()
"""
FREEZE: Final = """
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("--freeze", type={kind})
parser.parse_args(["--freeze", "False"])
"""
SCHEDULED: Final = """
schedule = torch.optim.lr_scheduler.StepLR(optimizer, {first}, gamma=0.1)
for _ in range(120):
    step()
    schedule.step()
"""
GOES_ON: Final = """
import os
def save(path):
    torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}}, path)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
if not (child := os.fork()):  # the run before
    step()
    save("last.pt")
    os._exit(0)
os.waitpid(child, 0)
saved = torch.load("last.pt")
{load}
step()
{save}
"""
CLASSIFIED: Final = """
from torch.nn.functional import cross_entropy
for _ in range(12):
    optimizer.zero_grad()
    cross_entropy(model(data){probabilities}, torch.arange(16) % 4).backward()
    optimizer.step()
"""
CLIPPED: Final = """
from torch.nn.utils import clip_grad_norm_
scaler = torch.amp.GradScaler("cpu")
for _ in range(12):
    optimizer.zero_grad()
    scaler.scale(model(data).sum()).backward()
    {unscaled}
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
STREAMED: Final = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        yield from range({first}, 64, {every})
for _ in torch.utils.data.DataLoader(Stream(), 4, num_workers=2):
    step()
"""
SCRIPTS: Final = {
    CHANGED_NOTHING: "optimizer.param_groups[0]['lr'] = 0\nstep()",
    NOTHING_LOADED: "model.load_state_dict({f'module.{k}': v for k, v in model.state_dict().items()}, strict=False)",
    OWN_LOADED: "best = model.state_dict()\nstep()\nmodel.load_state_dict(best)",
    TAKEN_FOR_TRUE: FREEZE.format(kind="bool"),
    NOT_GIVEN: LAYERS.format(container="torch.nn.ModuleList", change="model.module.first = torch.nn.Linear(4, 4)"),
    NOT_REGISTERED: LAYERS.format(container="list", change=""),
    NOT_OPTIMIZED: REPLACED.format(early="optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", late=""),
    NO_BATCH_SEEN: AVERAGED.format(of="parameters()"),
    RESUMED_ALONE: RESUMED_WITHOUT.format(load=""),
    NEVER_ZEROED: "for _ in range(9):\n    passed()\n    optimizer.step()",
    ZEROED_UNUSED: 8 * (3 * "model.zero_grad()\npassed()\n" + "step()\n"),
    CLIPPED_SCALED: CLIPPED.format(unscaled=""),
    PROBABILITIES: CLASSIFIED.format(probabilities=".softmax(1)"),
    FADED: SCHEDULED.format(first=5),
    UNAVERAGED: GROUP.format(exchanged=0),
    STILL_EVALUATES: "step()\nmodel.eval()\nwith torch.no_grad():\n    model(data)\nstep()",
    STILL_TRAINS: EVALUATED.format(first=""),
    NOT_RESUMED: GOES_ON.format(load="model.load_state_dict(saved['model'])", save="save('./last.pt')"),
    NEW_SCHEDULE: RESUMED.format(load=""),
    SAME_ORDER: PASSES.format(chosen="", passes="DataLoader(data, sampler=sampler)"),
    REPLAYED: "kept = None" + PASSES.format(
        chosen="sampler.set_epoch(epoch); kept = kept or list(DataLoader(data, sampler=sampler))", passes="kept"
    ),
    WARNED: "torch.nn.functional.mse_loss(torch.ones(3, 1), torch.ones(3))",
    UNSEEN_CHANGE: WORKERS.format(persistent=True),
    SAME_DRAWS: DRAWN.format(shuffle=True),
    SAME_SAMPLES: STREAMED.format(first="0", every="1"),
    LEFT_GRADIENTS: "for i in range(11):\n    passed()\n    if i % 4 == 3:\n        optimizer.step()",
}  # fmt: skip
WELL: Final = (
    STREAMED.format(first="info.id", every="info.num_workers"),
    "step()",
    "",
    "model.load_state_dict(model.state_dict(), strict=False)",
    FREEZE.format(kind="str"),
    "import warnings\nwarnings.warn('Using another target size')",
    GROUP.format(exchanged=3),
    LAYERS.format(container="torch.nn.ModuleList", change=""),
    "for i in range(32):\n    model.zero_grad()\n    passed()\n    optimizer.step()",
    "for i in range(32):\n    passed()\n    if i % 4 == 3:\n        optimizer.step()\n        optimizer.zero_grad()",
    "step()\nmodel.eval()\nwith torch.no_grad():\n    model(data)\nmodel.train()\nstep()",
    EVALUATED.format(first="model.eval()"),
    CLIPPED.format(unscaled="scaler.unscale_(optimizer)"),
    CLASSIFIED.format(probabilities=""),
    SCHEDULED.format(first=20),
    REPLACED.format(early="", late="optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"),
    AVERAGED.format(of="state_dict().values()"),
    RESUMED_WITHOUT.format(load="optimizer.load_state_dict(before)"),
    GOES_ON.format(load="model.load_state_dict(saved['model'])", save="save('tuned.pt')"),
    GOES_ON.format(
        load="model.load_state_dict(saved['model']); optimizer.load_state_dict(saved['optimizer'])",
        save="save('last.pt')",
    ),
    RESUMED.format(load="schedule.load_state_dict(state)"),
    PASSES.format(chosen="sampler.set_epoch(epoch)", passes="DataLoader(data, sampler=sampler)"),
    WORKERS.format(persistent=False),
    DRAWN.format(shuffle=False),
    "for i in range(12):\n    passed()\n    if i % 4 == 3:\n        optimizer.step()",
)


def notes(folder: Path, script: str) -> list[str]:
    """What a rank says at the end of a script."""
    run_warm(folder, BEGIN + script, MASTER_PORT=str(free_port()))
    return noted(folder)


def noted(folder: Path) -> list[str]:
    """The notes in a rank's output."""
    return [line for line in (folder / "output").read_text().splitlines() if line.startswith("note: ")]


@pytest.mark.parametrize("told", [one for one in NOTES if one != ANOTHER_MODEL])
def test_a_rank_says_at_its_end_what_spoiled_a_result(told: str, tmp_path: Path) -> None:
    (line,) = notes(tmp_path, SCRIPTS[told])
    assert line.startswith(f"note: {told}")


@pytest.mark.parametrize("script", WELL)
def test_a_rank_says_nothing_of_scripts_that_are_well(script: str, tmp_path: Path) -> None:
    assert notes(tmp_path, script) == []


@pytest.mark.parametrize("more", [0.1, 0])
def test_of_two_ranks_the_second_says_that_its_model_is_another_one(more: float, tmp_path: Path) -> None:
    group = {"WORLD_SIZE": "2", "MASTER_PORT": str(free_port())}
    folders = [tmp_path / str(rank) for rank in range(2)]
    ends = []
    for rank, folder in enumerate(folders):
        folder.mkdir()
        ends.append(start_warm(folder, BEGIN + DIVERGED.format(more=more), RANK=str(rank), **group))
    for end in ends:
        end()
    first, second = map(noted, folders)
    assert not first
    assert [line.partition(": ")[2][: len(ANOTHER_MODEL)] for line in second] == [ANOTHER_MODEL] * bool(more)
