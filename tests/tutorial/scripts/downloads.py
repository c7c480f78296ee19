"""Load MNIST on every rank: by torchvision, as in tutorials, and by kitctl."""

import json
import os
import sys
from pathlib import Path

import torchvision

from kittrain import join
from kittrain.workloads import mnist_files


def main(how, root, mirror):
    torchvision.datasets.MNIST.mirrors = [f"{mirror}/"]
    torchvision.datasets.MNIST.resources = [*json.loads(os.environ["DIGESTS"]).items()]
    with join() as world:
        world.barrier()
        if how == "tutorial":
            torchvision.datasets.MNIST(root, download=True)
        else:
            mnist_files.load("MNIST", Path(root), mirror)


if __name__ == "__main__":
    main(*sys.argv[1:])
