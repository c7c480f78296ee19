"""Trains with torch alone, as PyTorch's DDP tutorial does: it saves each epoch, and resumes from the last one.

FAULT names what rank FAULTY does after STEPS optimizer steps of this process, FAULTS times in all.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS, STEPS = int(os.environ.get("EPOCHS", "3")), int(os.environ.get("STEPS", "10"))
SECONDS = float(os.environ.get("STEP_SECONDS", "0.01"))
fault, at = os.environ.get("FAULT", ""), int(os.environ.get("FAULT_AT", "15"))
faulty = os.environ["RANK"] == os.environ.get("FAULTY", "1")
folder = Path(os.environ["OUTPUT"])
snapshot = folder / "snapshot.pt"


def due() -> bool:
    """Whether to fail now: each file of a fault is made once."""
    done = len(list(folder.glob("fault-*")))
    if not faulty or done >= int(os.environ.get("FAULTS", "1")):
        return False
    (folder / f"fault-{done}").touch()
    return True


def fail() -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "raise":
        raise ValueError("a bad sample")
    if fault == "sleep":
        time.sleep(600)
    if fault == "exit":
        sys.exit(3)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
first = 0
if sharded := os.environ.get("FORMAT") == "dcp":
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
if snapshot.exists():
    state = {"model": model.module.state_dict(), "epoch": 0}
    if sharded:
        get_state_dict(model, optimizer)  # takes a step, to create the optimizer's state
        dcp.load(state, checkpoint_id=snapshot.read_text())
    else:
        state = torch.load(snapshot, weights_only=True)
    model.module.load_state_dict(state["model"])
    first = state["epoch"]
    print(f"resumed at epoch {first}", flush=True)
taken = 0
for epoch in range(first, EPOCHS):
    for _step in range(STEPS):
        late = "SLEEP_LATE" in os.environ
        time.sleep(0 if late else SECONDS)
        optimizer.zero_grad()
        model(torch.ones(8, 4)).sum().backward()
        time.sleep(SECONDS if late else 0)
        optimizer.step()
        taken += 1
        if taken == at and due():
            fail()
    state = {"model": model.module.state_dict(), "epoch": epoch + 1}
    if sharded:
        dcp.save(state, checkpoint_id=folder / f"epoch-{epoch}")
    if dist.get_rank() == 0 and "NO_SNAPSHOT" not in os.environ:
        if sharded:
            (folder / "scratch.pt").write_text(str(folder / f"epoch-{epoch}"))
        else:
            torch.save(state, folder / "scratch.pt")
        (folder / "scratch.pt").replace(snapshot)
    dist.barrier()
print(f"took {taken} steps", flush=True)
dist.destroy_process_group()
