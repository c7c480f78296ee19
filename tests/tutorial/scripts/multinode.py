"""The structure of PyTorch's multi-node DDP tutorial, on CPUs, with the mistakes of scripts that copy it.

torchrun --nnodes=2 --nproc_per_node=2 multinode.py 50 10
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, args, data, model, optimizer):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.rank = int(os.environ["RANK"])
        self.args, self.data, self.optimizer = args, data, optimizer
        self.epochs_run = 0
        if args.snapshot.exists():
            snapshot = torch.load(args.snapshot)
            model.load_state_dict(snapshot["MODEL_STATE"])
            self.epochs_run = snapshot["EPOCHS_RUN"]
            print(f"Resuming training from snapshot at Epoch {self.epochs_run}")
        self.model = DistributedDataParallel(model)

    def _run_epoch(self, epoch):
        self.data.sampler.set_epoch(epoch)
        for inputs, targets in self.data:
            self.optimizer.zero_grad()
            loss = getattr(functional, self.args.loss)(self.model(inputs), targets)
            loss.backward()
            self.optimizer.step()
        print(f"[GPU{self.rank}] Epoch {epoch} | Steps: {len(self.data)} | Loss: {loss.item():.6f}")

    def _save_snapshot(self, epoch):
        # Mistakes: the epoch that has just ended is run again, and the optimizer's state is lost.
        snapshot = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + self.args.offset}
        torch.save(snapshot, self.args.snapshot)
        print(f"Epoch {epoch} | Training snapshot saved at {self.args.snapshot.name}")

    def train(self):
        for epoch in range(self.epochs_run, self.args.total_epochs):
            self._run_epoch(epoch)
            # Mistake: each node has a local rank 0.
            if self.local_rank == 0 and epoch % self.args.save_every == 0:
                self._save_snapshot(epoch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("total_epochs", type=int)
    parser.add_argument("save_every", type=int)
    parser.add_argument("--batch_size", default=4, type=int)
    parser.add_argument("--snapshot", default="snapshot.pt", type=Path)
    parser.add_argument("--loss", default="mse_loss")  # mistake of the tutorial: cross_entropy
    parser.add_argument("--offset", default=0, type=int, help="1 repairs the number of epochs")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.rand(64, 8)
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data = DataLoader(dataset, batch_size=args.batch_size, sampler=DistributedSampler(dataset))
    Trainer(args, data, model, optimizer).train()
    if dist.get_rank() == 0:
        print(f"weights {model.weight.tolist()}")
        print(f"error {(model(inputs) - dataset.tensors[1]).square().mean().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
