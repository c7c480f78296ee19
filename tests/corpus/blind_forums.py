"""Situations of a blind set from public threads about pipelines, groups, meshes, optimizers and processes."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, Situation

_PIPELINE: Final = (
    GROUP
    + """
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
stage = PipelineStage(torch.nn.Linear(8, 8), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=3, loss_fn=torch.nn.functional.mse_loss)
for size in [9] * 20 + [{last}]:
    x, y = torch.randn(size, 8), torch.randn(size, 8)
    schedule.step(x) if rank == 0 else schedule.step(target=y)
    time.sleep(0.05)
"""
)
_SOURCE: Final = (
    DDP
    + """
groups = [dist.new_group([one]) for one in range(2)]
for i in range(30):
    step()
options = [{"lr": 0.1}]
dist.broadcast_object_list(options, src=0, group=groups[rank])
"""
)
_KEEPS: Final = (
    GROUP
    + """
import copy
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        self.features = self.layer(x)
        return self.features
net = Net()
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(100):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    if i == 20:
        average = copy.deepcopy(net)
"""
)
_SCALER: Final = (
    GROUP
    + """
body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(body))
first, second = torch.optim.SGD(body.parameters(), 0.1), torch.optim.SGD(head.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu")
for i in range(20):
    scaler.scale(model(torch.randn(2, 4)).sum()).backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
"""
)
_SHARDED: Final = (
    GROUP
    + """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)
for i in range(30):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
if rank == 0:
    torch.save({"optimizer": optimizer.state_dict()}, "last.pt")
dist.barrier()
"""
)
_JOINS: Final = (
    DDP
    + """
import multiprocessing
def work(queue):
    for i in range(200):
        queue.put(b"x" * 10000)
for i in range(20):
    step()
if rank == 0:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    process.join()
dist.barrier()
"""
)
_EVOLUTION: Final = (
    GROUP
    + """
torch.manual_seed(rank)
weights = torch.zeros(8)
for generation in range(100):
    noise = torch.randn(8)
    score = -((weights + noise - 1) ** 2).sum().reshape(1)
    scores, noises = [torch.zeros(1) for _ in range(2)], [torch.zeros(8) for _ in range(2)]
    dist.all_gather(scores, score)
    dist.all_gather(noises, noise)
    weights += 0.1 * noises[int(scores[1] > scores[0])]
    time.sleep(0.1)
    if rank == 0 and generation % 10 == 0:
        print(f"generation {generation}: fitness {max(map(float, scores)):.3f}", flush=True)
"""
)
_TWO_MODELS: Final = (
    GROUP
    + """
D = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
G = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 4))
d, g = torch.optim.Adam(D.parameters(), 0.01), torch.optim.Adam(G.parameters(), 0.01)
try:
    int("not a number of workers")
except ValueError as error:
    print("ERROR: OMP threads:", error, "- using 1", flush=True)
for i in range(200):
    d.zero_grad()
    (D(G(torch.randn(4, 2)).detach()).mean() - D(torch.randn(4, 4)).mean()).backward()
    d.step()
    if i % 5 == 0:
        g.zero_grad()
        (-D(G(torch.randn(4, 2))).mean()).backward()
        g.step()
    time.sleep(0.03)
"""
)
BLIND_FORUMS: Final = (
    Situation(
        name="micro batches of unequal size",
        script=_PIPELINE.format(last=8),
        cause="^rank 1: a pipeline's micro-batches differ in size: 3 and 2",
        fix="drop_last=True",
        first=(True, False),
    ),
    Situation(
        name="a source outside of its group",
        script=_SOURCE,
        cause="^rank 1: ValueError: Global rank 0 is not part of group",
        fix="only members call a group's collectives",
        first=(True, True),
    ),
    Situation(
        name="a mesh that is larger than the job",
        script=GROUP + "from torch.distributed.device_mesh import init_device_mesh\n"
        'init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))',
        cause="Mesh should not be bigger than default world size 2",
        fix="--nodes",
        first=(True, True),
    ),
    Situation(
        name="a model that keeps its results is copied",
        script=_KEEPS,
        cause="support the deepcopy",
        fix=r"detach\(\) what it keeps",
        first=(True, False),
    ),
    Situation(
        name="a scaler for what has no gradients",
        script=_SCALER,
        cause="AssertionError: No inf checks were recorded for this optimizer",
        fix="parameters get gradients",
        first=(True, True),
    ),
    Situation(
        name="a sharded optimizer that was not consolidated",
        script=_SHARDED,
        cause="^rank 0: RuntimeError: Optimizer state has not been consolidated",
        fix="all ranks call optimizer.consolidate_state_dict",
        first=(True, False),
    ),
    Situation(
        name="a process is joined before its queue is read",
        script=_JOINS,
        cause=r"rank 0 waits for a process at train\.py:26, rank 1 waits in barrier",
        first=(True, False),
    ),
    Situation(name="healthy pipeline", script=_PIPELINE.format(last=9), healthy=True, first=(True, True)),
    Situation(name="healthy evolution without an optimizer", script=_EVOLUTION, healthy=True, first=(True, True)),
    Situation(name="healthy pair of models", script=_TWO_MODELS, healthy=True, first=(True, True)),
)
