"""Every rank prints the sum of all ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print("sum of ranks", total.item(), "of", dist.get_world_size())
dist.destroy_process_group()
