"""The sum of all ranks, for ``python -m torch.distributed.launch``, which gives each rank its local rank."""

import argparse
import os

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    assert args.local_rank == int(os.environ["LOCAL_RANK"])
    if dist.get_rank() == 0:
        print(f"Sum of ranks: {total.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
