"""Trains a small GPT, byte by byte, on the reference pages that come with Python: 465,000 characters.

    torchrun --nproc-per-node 2 -m kittrain.workloads.lm --sharded
    kitctl submit --nodes 2 --gpus-per-node 4 -m kittrain.workloads.lm --sharded --recompute --layers 24 --width 1024

Prints the loss on text that it was not trained on, and a sample. ``--sharded`` shards parameters, gradients and
optimizer over all ranks (FSDP2); ``--recompute`` keeps the inputs of blocks only, and computes the rest again in the
backward pass. Both can be changed from one run to the next: snapshots fit either way.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

from kittrain import Data, Training, evaluate, join
from kittrain.workloads.schedule import warmup_and_decay

BYTES: Final = 256
TEST_SHARE: Final = 0.1  # of the text, at its end
PROMPT: Final = "The "
TEMPERATURE: Final = 0.8


def main(argv: Sequence[str] | None = None) -> None:
    """Train; print the loss on the test text, and a sample."""
    args = options().parse_args(argv)
    if args.width % args.heads:
        raise SystemExit(f"lm: --width {args.width} is not divisible by --heads {args.heads}")
    with join(seed=args.seed) as world:
        train, test = text(args.context)
        model = GPT(args).to(world.device)
        if args.sharded and world.size > 1:
            shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1, betas=(0.9, 0.95))
        data = Data(train, batch=args.batch_size, seed=args.seed)
        steps = args.epochs * data.order.steps_per_epoch
        Training(
            world,
            model,
            optimizer,
            lambda model, batch: losses(model, batch).mean(),
            data,
            epochs=args.epochs,
            scheduler=warmup_and_decay(optimizer, steps=steps),
            on_epoch=lambda _: {"test_loss": evaluate(world, model, test, losses, batch=args.batch_size)},
        ).fit()
        loss = evaluate(world, model, test, losses, batch=args.batch_size)
        world.print(f"loss {loss:.4f} nats per byte on {len(test)} test windows of {args.context} bytes")
        world.print(f"sample:\n{sample(model, PROMPT, args)}")


class Block(nn.Module):
    """Attention to what stands before each position, then a layer for each position alone; both are added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, states: Tensor) -> Tensor:
        """States (n, time, width) to the next ones."""
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(states)).chunk(3, dim=2)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.out(attended.transpose(1, 2).flatten(2))
        return states + cast("Tensor", self.mlp(self.norm2(states)))


class GPT(nn.Module):
    """Bytes (n, time) in, scores for each next byte (n, time, 256) out. ``args`` are those of the command line."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.recompute = args.recompute
        self.bytes, self.positions = nn.Embedding(BYTES, args.width), nn.Embedding(args.context, args.width)
        self.blocks = nn.ModuleList(Block(args.width, args.heads) for _ in range(args.layers))
        self.norm, self.scores = nn.LayerNorm(args.width), nn.Linear(args.width, BYTES)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """The scores, float32; on GPUs, blocks compute in bfloat16."""
        states = self.bytes(text) + self.positions(torch.arange(text.shape[1], device=text.device))
        with torch.autocast(text.device.type, torch.bfloat16, enabled=text.device.type == "cuda"):
            for block in self.blocks:
                kept = self.recompute and self.training
                states = checkpoint(block, states, use_reentrant=False) if kept else block(states)
            scores: Tensor = self.scores(self.norm(states))
        return scores.float()


def shard(model: GPT) -> None:
    """Shard parameters, gradients and the optimizer's state over all ranks; a block's are whole while it computes."""
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)


def losses(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Cross-entropy of the bytes of each window, (n,), in nats."""
    windows = batch[0].long()
    scores: Tensor = model(windows[:, :-1])
    each = functional.cross_entropy(scores.transpose(1, 2), windows[:, 1:], reduction="none")
    return each.mean(dim=1)


@torch.no_grad()
def sample(model: nn.Module, prompt: str, args: argparse.Namespace) -> str:
    """The text with ``args.sample`` bytes more. Collective if the model is sharded; equal on all ranks."""
    generator = torch.Generator().manual_seed(args.seed)
    device = next(model.parameters()).device
    written = torch.tensor([*prompt.encode()], device=device)
    for _ in range(args.sample):
        scores = model(written[None, -args.context :])[0, -1] / TEMPERATURE
        chosen = torch.multinomial(scores.softmax(dim=0).cpu(), 1, generator=generator)
        written = torch.cat([written, chosen.to(device)])
    return bytes(written.tolist()).decode(errors="replace")


def text(context: int) -> tuple[TensorDataset, TensorDataset]:
    """Training and test text as windows (n, context + 1) of bytes; each begins with the last byte of the one before."""
    pages: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    content = torch.frombuffer(bytearray("\n\n".join(pages.values()).encode()), dtype=torch.uint8)
    end = int((1 - TEST_SHARE) * len(content))
    train, test = (
        TensorDataset(part.unfold(0, context + 1, context).contiguous()) for part in (content[:end], content[end:])
    )
    return train, test


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser("lm", description="Train a small GPT on the reference pages of Python.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8, help="windows per step, over all ranks")
    parser.add_argument("--context", type=int, default=128, help="bytes in a window")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=128, help="numbers that describe a position")
    parser.add_argument("--heads", type=int, default=4, help="of the attention")
    parser.add_argument("--lr", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0, help="of the weights, the data order and the sample")
    parser.add_argument("--sample", type=int, default=300, metavar="BYTES", help="printed at the end")
    parser.add_argument("--sharded", action="store_true", help="shard the model over all ranks, with FSDP2")
    parser.add_argument("--recompute", action="store_true", help="keep fewer activations (checkpointing)")
    return parser


if __name__ == "__main__":
    main()
