"""Accuracy over all ranks: by DistributedSampler and all_gather, as in tutorials, and by ``evaluate``."""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from kittrain import evaluate, join


def correct(model, batch):
    inputs, labels = batch
    return model(inputs).argmax(dim=1) == labels


def main():
    with join() as world:
        model = torch.nn.Identity()
        scores = torch.eye(2).repeat(5, 1)  # class 0, 1, 0, 1, ...
        labels = torch.tensor([0, 0, *[0, 1] * 4])  # the second one is wrong, and the first two are padding
        dataset = TensorDataset(scores, labels)
        sampler: DistributedSampler[int] = DistributedSampler(
            dataset, shuffle=False
        )  # mistake: it repeats samples, so that all ranks have as many
        found = torch.cat([correct(model, batch) for batch in DataLoader(dataset, sampler=sampler)])
        gathered = [torch.empty_like(found) for _ in range(world.size)]
        dist.all_gather(gathered, found)
        padded = torch.cat(gathered)
        exact = evaluate(world, model, dataset, correct)
        world.print(f"padded: {padded.float().mean():.4f} of {len(padded)}; exact: {exact:.4f} of {len(dataset)}")

        # Mistake: the local rank is taken for the rank, so that all nodes train on the same samples.
        mine: DistributedSampler[int] = DistributedSampler(
            dataset, world.size, rank=int(os.environ["LOCAL_RANK"]), shuffle=False
        )
        print(f"local rank: node {os.environ['GROUP_RANK']} has {list(mine)}", flush=True)


if __name__ == "__main__":
    main()
