"""The sum of all ranks: the smallest script for torchrun."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"Sum of ranks: {total.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
