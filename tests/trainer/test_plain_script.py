"""A plain PyTorch script: its progress is shown, and it recovers from hangs and failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.trainer.nodes import SCRIPTS, Nodes

pytestmark = pytest.mark.slow

PLAIN = str(SCRIPTS / "plain.py")


def plain(folder: Path, **env: str) -> Nodes:
    """A job of ``scripts/plain.py`` on two nodes."""
    return Nodes(folder, PLAIN, OUTPUT=str(folder), **env)


@pytest.mark.parametrize("warm", [pytest.param("0", marks=pytest.mark.long), "1"])
def test_steps_and_speed_are_reported(tmp_path: Path, warm: str) -> None:
    with plain(tmp_path, KIT_WARM_WORKERS=warm) as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        progress = nodes.report()["progress"]
        assert progress["step"] == 30
        assert progress["resumed_at"] >= nodes.report()["formed"]


def test_a_killed_rank_is_restarted_and_the_parts_of_the_recovery_are_measured(tmp_path: Path) -> None:
    with plain(tmp_path, FAULT="kill") as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        assert "resumed at epoch 1" in nodes.output(0)
        report = nodes.report()
        assert report["progress"]["step"] == 20
        measured = [part for part, seconds in report["last_recovery"].items() if seconds is not None]
        assert measured == ["cause", "stop", "form", "start", "join", "first_step"], "what a script restores is unknown"


def test_a_rank_that_hangs_is_named(tmp_path: Path) -> None:
    with plain(tmp_path, FAULT="sleep", KIT_POLICY_HANG_TIMEOUT="4", PET_MAX_RESTARTS="0") as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        hang = next(line for line in nodes.output(0).splitlines() if "hang: " in line)
        assert "rank 1 (node 1, pod local-1) has been in the script's own loop after step 15 for " in hang
        assert " in fail; rank 0 waits in " in hang
        assert hang.endswith("; started again"), "the first time is not charged"


@pytest.mark.parametrize("form", [pytest.param("torch.save", marks=pytest.mark.long), "dcp"])
def test_a_script_that_continues_from_a_new_checkpoint_resets_its_restarts(tmp_path: Path, form: str) -> None:
    with plain(tmp_path, FAULT="kill", FAULTS="4", EPOCHS="6", PET_MAX_RESTARTS="1", FORMAT=form) as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        assert nodes.output(1).count("failed (killed by SIGKILL), restart 1 of 1") == 4


@pytest.mark.parametrize("script", [{"FAULT": "kill", "NO_SNAPSHOT": "1"}, {"FAULT": "raise"}])
def test_a_script_that_starts_over_or_fails_at_the_same_step_is_given_up(
    tmp_path: Path, script: dict[str, str]
) -> None:
    with plain(tmp_path, FAULTS="9", EPOCHS="9", PET_MAX_RESTARTS="2", **script) as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [78, 78]
        assert nodes.end(1)["reason"].endswith("no restart left of 2")


def test_a_deterministic_error_is_retried_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('started')\nlod_data()\n")
    with Nodes(tmp_path, str(tmp_path / "train.py"), nodes="1") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        assert nodes.output(0).count("started") == 2
        assert nodes.end(0)["reason"].endswith("which no restart can fix")


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        pytest.param("torch.ones(2, 5) @ torch.ones(4, 4)", 2, id="of the code"),
        pytest.param("{}['rows']", 4, id="of an answer"),
        pytest.param("step(); torch.ones(2, 5) @ torch.ones(4, 4)", 2, id="after a step"),
        pytest.param("step(); {}['rows']", 4, id="of an answer after a step"),
        pytest.param("[step() for _ in range(tries())]; torch.ones(2, 5) @ torch.ones(4, 4)", 4, id="later"),
    ],
)
def test_an_error_of_the_code_that_comes_again_after_as_many_steps_ends_the_job(
    tmp_path: Path, error: str, tries: int
) -> None:
    (tmp_path / "train.py").write_text(f"{STEP}print('started')\n{error}\n")
    with Nodes(tmp_path, str(tmp_path / "train.py"), nodes="1", PET_MAX_RESTARTS="3") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 78
        assert nodes.output(0).count("started") == tries
        after = "after as many steps" if "step()" in error else "without a step"
        twice = f"2 times at the same line {after}, which no restart can fix"
        assert nodes.end(0)["reason"].endswith(twice if tries == 2 else "no restart left of 3")


STEP = """
import torch
optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
def step():
    optimizer.step()
def tries():
    with open(__file__ + ".tries", "a+") as file:
        file.write(".")
        file.seek(0)
        return len(file.read())
"""
ALONE = """
import torch
optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
for _ in range(3):
    optimizer.step()
"""


@pytest.mark.parametrize(
    "late",
    [
        pytest.param({}, id="before the forward pass"),
        pytest.param({"SLEEP_LATE": "1"}, id="before the update", marks=pytest.mark.long),
    ],
)
def test_a_slow_rank_of_a_plain_script_is_named(tmp_path: Path, late: dict[str, str]) -> None:
    conf = "keep_alive_interval=1,keep_alive_max_attempt=1"  # one check per second
    with plain(tmp_path, PET_RDZV_CONF=conf, STEPS="40", EPOCHS="1", **late) as nodes:
        nodes.start(0)
        nodes.start(1, STEP_SECONDS="0.2")
        nodes.until(0, "rank 1 is slow: ")
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]
        assert "rank 0 is slow" not in nodes.output(0)
        report = nodes.report()
        assert report["busy"]["1"] > 0.1 > report["busy"]["0"]
        assert list(report["slow"]) == ["1"]


BY_HAND = """
import torch
model = torch.nn.Linear(2, 1)
for _ in range(9):
    model(torch.ones(1, 2)).square().sum().backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.01)
    model.zero_grad()
"""
FIRST_ONLY = f"""
import os
if os.environ["RANK"] == "0":
{ALONE.replace(chr(10), chr(10) + "    ")}
"""
GROUP = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
METRICS = f"""
{GROUP}
import torch
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(9):
    loss = model(torch.ones(1, 512)).square().sum()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
"""


@pytest.mark.parametrize(
    ("script", "warning"),
    [
        pytest.param(ALONE, "3 ranks train, without a process group: each has a model of its own", id="an optimizer"),
        pytest.param(BY_HAND, "3 ranks train, without a process group: each has a model of its own", id="by hand"),
        pytest.param(GROUP + BY_HAND, "3 ranks train in a process group, and exchange no gradients", id="a group"),
        pytest.param(METRICS, "3 ranks train in a process group, and exchange no gradients", id="metrics"),
        pytest.param(FIRST_ONLY, "", id="one rank, and no group"),
        pytest.param(GROUP + FIRST_ONLY + "dist.barrier()", "", id="one rank, for which others wait"),
    ],
)
def test_ranks_that_train_alone_succeed_with_a_warning(tmp_path: Path, script: str, warning: str) -> None:
    (tmp_path / "train.py").write_text(script)
    with Nodes(tmp_path, str(tmp_path / "train.py"), nodes="3") as nodes:
        nodes.start(0, 1, 2)
        assert [nodes.wait(index) for index in range(3)] == [0, 0, 0], nodes.everything()
        found = nodes.report()["warning"]
        assert found.startswith(warning)
        assert bool(found) == bool(warning)
        logged = re.findall(r"\[agent 0\]: warning: [23] ranks train", nodes.output(0))  # at the second that does
        assert len(logged) == bool(warning)
        assert nodes.end(0)["reason"] == f"all ranks succeeded, but {found}" if found else "all ranks succeeded"


SAMPLERS = """
import os, sys, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.ones(24, 2))
sampler = DistributedSampler(data, seed=rank * int(sys.argv[1]))
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (batch,) in DataLoader(data, batch_size=4, sampler=sampler, num_workers=epoch):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("factor", ["1", "0"])
def test_ranks_whose_samplers_have_different_seeds_succeed_with_a_warning(tmp_path: Path, factor: str) -> None:
    (tmp_path / "train.py").write_text(SAMPLERS)
    with Nodes(tmp_path, str(tmp_path / "train.py"), factor) as nodes:
        nodes.start(0, 1)
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0], nodes.everything()
        told = "the DistributedSampler of rank 0 has seed=0, that of rank 1 seed=1: they do not divide the data"
        assert nodes.report()["warning"].startswith(told if factor == "1" else "")
        assert bool(nodes.report()["warning"]) is (factor == "1")
        assert "set_epoch" not in nodes.output(0)
