"""What is set in a data set after its workers have begun, and what its workers see."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from kittrain.agent.hooks.notes.unseen_changes import UnseenChanges
from kittrain.outcome.rank_output import UNSEEN_CHANGE, trains_nothing


class Augmented(Dataset[int]):
    """Samples that depend on the epoch."""

    def __init__(self) -> None:
        self.epoch = 0
        self.mean = float("nan")  # which is not equal to itself
        self.token = "a"
        self.shared = torch.zeros(1)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, _index: int) -> int:
        return self.epoch


TOLD = f"{UNSEEN_CHANGE}Augmented.epoch is 1, and 0 in the workers"


@pytest.mark.parametrize(
    ("options", "set_to", "steps", "told"),
    [
        ({"num_workers": 1, "persistent_workers": True}, 1, 4, TOLD),
        ({"num_workers": 1, "persistent_workers": True}, 0, 4, ""),
        ({"num_workers": 1, "persistent_workers": True}, 1, 0, ""),  # nothing was trained
        ({"num_workers": 1}, 1, 4, ""),
        ({}, 1, 4, ""),
    ],
)
@pytest.mark.parametrize("depth", [0, 2])
def test_what_is_set_in_a_data_set(
    options: dict[str, Any], set_to: int, steps: int, told: str, depth: int, capsys: pytest.CaptureFixture[str]
) -> None:
    own: Any = type("DataLoader", (DataLoader,), {"__iter__": DataLoader.__iter__})
    noted = UnseenChanges(lambda: steps)
    noted.watch(types.SimpleNamespace(DataLoader=own))  # type: ignore[arg-type]
    data = Augmented()
    around: Any = data
    for _ in range(depth):
        around = Subset(around, range(4))
    loader = own(around, batch_size=4, **options)
    seen = []
    for epoch in range(2):
        data.epoch = epoch and set_to
        data.shared += 1
        data.token += "b"
        seen += [int(batch[0]) for batch in loader]
    assert seen == [0, 0 if told or (set_to and options.get("persistent_workers")) else set_to]
    noted.tell()
    assert capsys.readouterr().err == (f"note: {told}\n" if told else "")
    if told:
        assert trains_nothing([f"note: {told}\n"]) == told
