"""A plain script that logs each step to W&B, MLflow and TensorBoard, and saves every five steps.

``tracked.py FOLDER STEPS``: rank 0 of the first start kills itself two steps after its first checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import mlflow
import torch
import wandb
from lightning.pytorch.loggers import TensorBoardLogger
from torch.distributed import barrier, destroy_process_group, init_process_group
from torch.utils.tensorboard import SummaryWriter

folder, steps = Path(sys.argv[1]), int(sys.argv[2])


def main() -> None:
    init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint, begin = folder / "last.pt", 0
    if checkpoint.exists():
        begin = torch.load(checkpoint)["step"]
    os.chdir(folder)
    run = wandb.init(project="tracked", dir=str(folder), mode="offline", name=f"rank-{rank}")
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    if rank == 0:
        mlflow.start_run()
        mlflow.log_params({"begin": begin, "lr": 0.1})
        writer = SummaryWriter()
        for trial in range(2):
            if not (folder / f"trial-{trial}").exists():  # a search that goes on where it was
                with mlflow.start_run(run_name="trial", nested=True):
                    mlflow.log_param("trial", trial)
                (folder / f"trial-{trial}").touch()
        with mlflow.start_run(run_name="warm-up", nested=True):
            mlflow.log_param("begin", begin)
        logger = TensorBoardLogger(folder / "lightning")
    for step in range(begin + 1, steps + 1):
        model(torch.ones(4, 2)).mean().backward()
        optimizer.step()
        run.log({"loss": float(step)}, step=step)
        if rank == 0:
            mlflow.log_metric("loss", float(step), step=step)
            writer.add_scalar("loss", float(begin), step)
            writer.flush()
            logger.log_metrics({"loss": float(begin)}, step)
            logger.save()
            if step % 5 == 0:
                torch.save({"step": step}, checkpoint)
            if step == 7 and begin == 0:
                run.finish()  # it would write what it holds back
                os.kill(os.getpid(), signal.SIGKILL)
        barrier()
    run.finish()
    if rank == 0:
        mlflow.end_run()
        writer.close()
    second = wandb.init(project="tracked", dir=str(folder), mode="offline", name=f"second-{rank}")
    second.finish()
    destroy_process_group()


main()
