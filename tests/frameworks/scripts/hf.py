"""A Hugging Face Trainer on a small GPT with dropout and random weights; the line for kitctl is marked."""

import argparse
import os
import signal
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from kittrain.integrations.huggingface import KitCallback


class Texts(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, pause=0.0):
        self.pause = pause  # seconds for each sample
        self.tokens = torch.randint(32, (48, 8), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        time.sleep(self.pause)
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class StopAt(TrainerCallback):
    """The last rank gets SIGTERM at a step."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, *_args, **_):
        if state.global_step + 1 == self.step and args.process_index == args.world_size - 1:
            os.kill(os.getpid(), signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stop-at", type=int)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--out", required=True)
    flags = parser.parse_args()
    torch.manual_seed(1)
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), flags.dropout)
    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=2, n_head=2, use_cache=False, **drops)
    args = TrainingArguments(
        output_dir="out",
        num_train_epochs=2,
        per_device_train_batch_size=flags.batch,
        learning_rate=1e-2,
        logging_steps=1,
        save_steps=3,
        save_total_limit=2,
        eval_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(GPT2LMHeadModel(config), args, train_dataset=Texts(flags.pause), eval_dataset=Texts())
    if flags.stop_at:
        trainer.add_callback(StopAt(flags.stop_at))
    trainer.add_callback(KitCallback(trainer))  # the line for kitctl
    trainer.train()
    if trainer.is_world_process_zero():
        torch.save(trainer.model.state_dict(), flags.out)


if __name__ == "__main__":
    main()
