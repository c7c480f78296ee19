"""``multinode.py`` with the trainer library: no snapshot code, no samplers, and none of the mistakes.

kitctl submit --nodes 2 --procs-per-node 2 -- multinode_kit.py 50
"""

import argparse

import torch
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, Training, evaluate, join


def loss(model, batch):
    inputs, targets = batch
    return functional.mse_loss(model(inputs), targets)


def squared_error(model, batch):
    inputs, targets = batch
    return (model(inputs) - targets).square().mean(dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("total_epochs", type=int)
    parser.add_argument("--batch_size", default=8, type=int)
    args = parser.parse_args()
    with join(seed=0) as world:
        inputs = torch.rand(64, 8)
        dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        data = Data(dataset, batch=args.batch_size)
        Training(world, model, optimizer, loss, data, epochs=args.total_epochs).fit()
        error = evaluate(world, model, dataset, squared_error)
        world.print(f"weights {model.weight.tolist()}")
        world.print(f"error {error:.6f}")


if __name__ == "__main__":
    main()
