"""The hooks observe a script's use of torch, and change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.agent.hooks.script_hooks import VARIABLE
from kittrain.outcome.rank_output import UNSEEN_CHANGE
from kittrain.system.heartbeat import Phase
from tests.trainer.hooked import run, run_warm
from tests.trainer.nodes import free_port

pytestmark = pytest.mark.slow

TRAIN = """
import sys
import torch
model = torch.nn.Linear(2, 1)
optimizers = [torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters(), lr=0.1)]
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
assert not [finder for finder in sys.meta_path if "kittrain" in type(finder).__module__ and "optim" in finder._name]
"""


@pytest.mark.wide
def test_optimizer_steps_are_counted_in_a_rank_that_imports_torch_later(tmp_path: Path) -> None:
    early = "import sys; assert 'torch' not in sys.modules, 'the hooks must not import it'"
    seen = run(tmp_path, early + TRAIN)
    assert (seen.step, seen.beats, seen.phase, seen.group) == (3, 6, Phase.SCRIPT, 0)


def test_the_hooks_can_be_left_out(tmp_path: Path) -> None:
    seen = run_warm(tmp_path, TRAIN, **{VARIABLE: "0"})
    assert (seen.step, seen.phase, any(seen.first)) == (0, Phase.STARTING, False)


def test_a_process_group_is_seen_however_it_was_formed_and_after_it_is_gone(tmp_path: Path) -> None:
    script = """
    from torch.distributed import destroy_process_group, init_process_group, new_group
    from torch.distributed.device_mesh import init_device_mesh
    {}
    new_group([0])
    destroy_process_group()
    """
    for call in ("init_process_group('gloo')", "init_device_mesh('cpu', (1,))"):
        assert run_warm(tmp_path, script.format(call)).group == 1


def test_a_script_without_torch_does_not_import_it(tmp_path: Path) -> None:
    assert run(tmp_path, "import sys; assert 'torch' not in sys.modules").step == 0


BUSY = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
dist.init_process_group("gloo")
model = torch.nn.Linear(2, 1)
model = {wrapped}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    time.sleep(0.05)
    {before}
    model(checkpoint(torch.sin, torch.ones(1, 2, requires_grad=True), use_reentrant=True)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("wrapped", "before", "timed"),
    [
        ("DistributedDataParallel(model)", "", 2),  # of 3: DDP rebuilds its buckets after the first step
        ("DistributedDataParallel(model)", "dist.barrier()", 0),
        ("DistributedDataParallel(model)", "dist.all_reduce(torch.ones(1), async_op=True).wait()", 0),
    ],
    ids=["none", "a barrier", "an all-reduce"],
)
def test_the_time_between_backward_passes_is_busy_unless_a_collective_was_called(
    tmp_path: Path, wrapped: str, before: str, timed: int
) -> None:
    seen = run_warm(tmp_path, BUSY.format(wrapped=wrapped, before=before), MASTER_PORT=str(free_port()))
    assert (seen.step, seen.timed) == (4, timed)
    assert 0.05 * timed <= seen.busy < 0.05 * timed + 2


def test_ranks_without_a_process_group_do_not_wait_for_each_other(tmp_path: Path) -> None:
    seen = run_warm(tmp_path, TRAIN)
    assert (seen.step, seen.timed, seen.busy) == (3, 0, 0.0)


@pytest.mark.wide
def test_compiled_steps_run_with_the_hooks(tmp_path: Path) -> None:
    script = """
    import torch
    model = torch.nn.Linear(2, 1)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    @torch.compile(backend="eager")
    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
    step()
    step()
    torch.testing.assert_close(model.weight, torch.full((1, 2), 0.8))
    """
    assert run_warm(tmp_path, script).step == 2


def test_objects_that_compare_by_value_or_refuse_to_be_looked_at_are_trained_as_without_the_hooks(
    tmp_path: Path,
) -> None:
    script = f"""
    from dataclasses import dataclass
    import torch, torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset, DistributedSampler

    def picky(kind):
        return type(kind.__name__, (kind,), {{"__eq__": lambda one, other: True, "__hash__": None}})

    @dataclass
    class Data(Dataset):
        size: int = 8
        def __len__(self):
            return self.size
        def __getitem__(self, at):
            return torch.ones(2)

    class Shy(torch.optim.SGD):
        hidden = False
        @property
        def param_groups(self):
            if self.hidden:
                raise RuntimeError("not now")
            return self.__dict__["groups"]
        @param_groups.setter
        def param_groups(self, groups):
            self.__dict__["groups"] = groups
        @torch.no_grad()
        def step(self, closure=None):
            self.hidden = False
            super().step()
            self.hidden = True

    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizers = [picky(torch.optim.SGD)(model.parameters(), lr=0.1), Shy(model.parameters(), lr=0.1)]
    optimizers[0].load_state_dict(optimizers[0].state_dict())
    schedules = [picky(torch.optim.lr_scheduler.StepLR)(one, 4) for one in optimizers]
    data = Data()
    sampler = picky(DistributedSampler)(data, num_replicas=1, rank=0)
    loader = picky(DataLoader)(data, sampler=sampler, batch_size=2, num_workers=1, persistent_workers=True)
    for data.size in (8, 7):
        for x in loader:
            for one in optimizers:
                one.hidden = False
                one.zero_grad()
            model(x).sum().backward()
            for one in optimizers:
                one.step()
        for one, schedule in zip(optimizers, schedules):
            one.hidden = False
            schedule.step()
    dist.destroy_process_group()
    """
    seen = run_warm(tmp_path, script)
    assert (seen.step, seen.beats) == (8, 16)
    assert f"{UNSEEN_CHANGE}Data.size is 7, and 8 in the workers" in (tmp_path / "output").read_text()
