"""What the names had in the line that raised an error, of real errors."""

from __future__ import annotations

import json
import operator
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kittrain.agent.processes.failing_line import LENGTH, values

NAMES: dict[str, Any] = {
    "total": 3.5,
    "losses": [],
    "loss": None,
    "batch": {"input": torch.zeros(2), "label": 1},
    "args": Namespace(learning_rate=0.1, token="hush"),
    "x": torch.zeros(32, 512),
    "layer": torch.nn.Linear(1024, 10),
    "loader": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(0, 2))),
    "state": SimpleNamespace(count=0, best=None, rows=(3, 4)),
    "token": "hush",
    "json": json,
}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("total / len(losses)", "len(losses) = 0, total = 3.5"),
        ("1 / len(loader)", "len(loader) = 0"),
        ("loss.backward()", "loss = None"),
        ("batch['inputs']", "batch = dict of 2: input, label"),
        ("batch['lable']", "batch = dict of 2: label, input"),
        ("args.lr", "args = Namespace of learning_rate, token"),
        ("layer(x)", "x = Tensor [32, 512] float32"),
        ("layer.weight @ x", "x = Tensor [32, 512] float32"),
        ("1 / state.count", "state.count = 0"),
        ("state.best.epoch", "state.best = None"),
        ("state.rows[len(batch)]", "state.rows = [3, 4], len(batch) = 2"),
        ("torch.cat(\n        losses\n    )", "losses = list of 0"),
        ("int(token)", "token = str of 4"),
        ("[one / 0 for one in [total]]", "one = 3.5"),
        ("json.loads(token)", "token = str of 4"),
        ("undefined + 1", ""),
        ("1 / 0", ""),
    ],
)
def test_the_values_of_a_line_are_told_without_its_texts(tmp_path: Path, line: str, told: str) -> None:
    error = raised(tmp_path, f"def f():\n    return {line}\nf()\n", NAMES | {"torch": torch})
    assert values(error).startswith(told) if told else values(error) == ""
    assert "hush" not in values(error)


class Watched:
    def __init__(self) -> None:
        self._asked: list[str] = []

    @property
    def count(self) -> int:
        self._asked.append("count")
        return 0

    def __getitem__(self, key: str) -> int:
        self._asked.append(key)
        return 1


def test_nothing_of_the_script_is_called_again(tmp_path: Path) -> None:
    thing = Watched()
    error = raised(tmp_path, "divide(thing['a'], thing.count)", {"thing": thing, "divide": operator.truediv})
    assert values(error) == ""
    assert vars(thing) == {"_asked": ["a", "count"]}, "by the script"


def test_many_and_large_values_stay_short(tmp_path: Path) -> None:
    many = {f"name_{number}": [10**40, 2] for number in range(50)}
    assert len(values(raised(tmp_path, f"sum([{', '.join(many)}], 0)", many))) <= LENGTH


def test_a_line_without_its_source_has_none() -> None:
    with pytest.raises(ZeroDivisionError) as info:
        exec("count = 0\n1 / count")
    assert values(info.value) == ""


def raised(folder: Path, script: str, names: dict[str, Any]) -> BaseException:
    file = folder / "train.py"
    file.write_text(script)
    with pytest.raises(Exception) as info:  # noqa: PT011  each its own
        exec(compile(script, str(file), "exec"), dict(names))
    return info.value
