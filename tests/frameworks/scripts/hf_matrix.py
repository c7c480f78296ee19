"""A small model in Hugging Face Trainers, as a matrix of interruptions."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

from kittrain.integrations.huggingface import KitCallback
from tests.frameworks.scripts import matrix

EVENTS = [name for name in dir(TrainerCallback) if name.startswith("on_") and name != "on_init_end"]
ARGUMENTS = {
    "num_train_epochs": 2,
    "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 4,
    "learning_rate": 0.1,
    "logging_steps": 1,
    "metric_for_best_model": "loss",
    "greater_is_better": False,
    "report_to": [],
    "disable_tqdm": True,
}


class Points(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.inputs, self.labels = (torch.rand(count, width, generator=generator) for width in (5, 1))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return {"inputs": self.inputs[index], "labels": self.labels[index]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, inputs, labels):
        found = self.layers(inputs)
        return {"loss": functional.mse_loss(found, labels), "logits": found}


class Interrupting(TrainerCallback):
    def __init__(self, interruption, part):
        self.interruption, self.part = interruption, part


for event in EVENTS:

    def at(self, _args, state, _control, *, event=event, **_):
        self.interruption.at(event, state.global_step, self.part)

    setattr(Interrupting, event, at)


def train(config, interruption):
    parts = config.get("parts", 1)
    return [fit(config, interruption, part) for part in range(parts)]


def fit(config, interruption, part):
    args = TrainingArguments(**{**ARGUMENTS, **config["arguments"], "output_dir": f"out/{part}"})
    torch.manual_seed(part)
    stops = [EarlyStoppingCallback(config["patience"])] if "patience" in config else []
    trainer = Trainer(Model(), args, train_dataset=Points(config.get("samples", 36), 1), eval_dataset=Points(7, 2))
    for callback in (*stops, Interrupting(interruption, part)):
        trainer.add_callback(callback)
    trainer.add_callback(KitCallback(trainer))
    output = trainer.train()
    interruption.at("after", trainer.state.global_step, part)
    state = trainer.state
    dropped = ("runtime", "per_second", "flos", "train_loss")  # of the steps since the resume
    return {
        "weights": matrix.digest(trainer.model.state_dict()),
        "random": matrix.random_state(),
        "rows": [{k: v for k, v in row.items() if not any(d in k for d in dropped)} for row in state.log_history],
        "best": [state.best_metric, state.best_global_step, (state.best_model_checkpoint or "").split("/")[-1]],
        "steps": [output.global_step, state.max_steps, state.epoch],
        "evaluated": trainer.evaluate()["eval_loss"],
        "rate": trainer.optimizer.param_groups[0]["lr"],
        "phase": matrix.phase(),
        "result": output.training_loss,
    }


if __name__ == "__main__":
    matrix.main(train)
