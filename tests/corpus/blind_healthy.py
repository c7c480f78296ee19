"""Jobs of the blind set that are well, and unusual."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, Situation

_TWO_OPTIMIZERS: Final = (
    GROUP
    + """
wrap = torch.nn.parallel.DistributedDataParallel
critic, maker = wrap(torch.nn.Linear(4, 1)), wrap(torch.nn.Linear(2, 4))
optimizers = [torch.optim.Adam(one.parameters()) for one in (critic, maker)]
for i in range(200):
    with torch.no_grad():
        fake = maker(torch.randn(2, 2))
    optimizers[0].zero_grad()
    critic(torch.cat([fake, torch.randn(2, 4)])).mean().backward()
    optimizers[0].step()
    if i % 5 == 0:
        optimizers[1].zero_grad()
        critic.module(maker(torch.randn(2, 2))).mean().backward()
        optimizers[1].step()
    time.sleep(0.05)
"""
)
_BATCH_SIZE: Final = (
    DDP
    + """
import traceback
for size in (4096, 2048, 1024):
    try:
        if size > 1024:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    except torch.OutOfMemoryError:
        traceback.print_exc()
for i in range(200):
    step()
"""
)
_JOIN: Final = (
    DDP
    + """
from torch.distributed.algorithms.join import Join
with Join([model]):
    for i in range(200 if rank else 30):
        step()
"""
)
_SHARES: Final = (
    DDP
    + """
from torch.distributed.algorithms.join import Join
for epoch in range(12):
    with Join([model]):
        for i in range(20 + 3 * rank):
            step()
"""
)

BLIND_HEALTHY: Final = (
    Situation(name="healthy gan with two optimizers", script=_TWO_OPTIMIZERS, healthy=True, first=(True, True)),
    Situation(name="healthy and finds its batch size by errors", script=_BATCH_SIZE, healthy=True, first=(True, True)),
    Situation(
        name="healthy and stops early on all ranks",
        script=DDP + "for i in range(100):\n    step()\nprint('early stopping, giving up')\nsys.exit(0)",
        healthy=True,
        first=(True, True),
    ),
    Situation(name="healthy with unequal batches in join", script=_JOIN, healthy=True, first=(True, True)),
    Situation(
        name="healthy and prints inf and nan",
        script=DDP + "best = float('inf')\nfor i in range(200):\n    step()\n"
        "    print(f'best loss so far: {best} perplexity: nan')",
        healthy=True,
        first=(True, True),
    ),
    Situation(name="healthy epochs of unequal shares in join", script=_SHARES, healthy=True, first=(False, True)),
)
