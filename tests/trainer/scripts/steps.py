"""A training loop without training: steps with a snapshot each, and an agreed end or drain (on SIGTERM).

A drain exits with DRAIN_CODE, rank 1 after SAVE_SECONDS more. With ALONE it exits at once, without the others.
"""

import json
import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist

GO_ON, DRAIN, FINISH = range(3)

snapshots = Path(os.environ["KIT_SNAPSHOT_DIR"])
stopping: list[bool] = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
dist.init_process_group("gloo")
rank = dist.get_rank()
start = max((int(entry.name[5:13]) for entry in snapshots.glob("step-*")), default=0)
print("world of", dist.get_world_size(), "from step", start)
for step in count(start + 1):
    time.sleep(0.05)
    if stopping and "ALONE" in os.environ:
        sys.exit(int(os.environ["DRAIN_CODE"]))
    request = FINISH if (snapshots / "enough").exists() else DRAIN if stopping else GO_ON
    agreed = torch.tensor([request])
    dist.all_reduce(agreed, dist.ReduceOp.MAX)  # also the collective that fails when a peer dies
    if rank == 0:
        (snapshots / f"step-{step:08}-g0001").mkdir(exist_ok=True)
        Path(os.environ["KIT_PROGRESS_FILE"]).write_text(json.dumps({"step": step}))
    dist.barrier()
    if agreed.item() == DRAIN:
        print("drained at step", step)
        time.sleep(float(os.environ.get("SAVE_SECONDS", "0")) * rank)
        sys.exit(int(os.environ.get("DRAIN_CODE", "75")))
    if agreed.item() == FINISH:
        print("finished at step", step)
        break
dist.destroy_process_group()
