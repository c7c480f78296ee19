"""The real safetensors: loading one of its files is recorded like loading one of torch's."""

from __future__ import annotations

from pathlib import Path

from tests.frameworks.marks import MARKS
from tests.trainer.hooked import run
from tools.test_frameworks import INTERPRETER

pytestmark = MARKS

SCRIPT = """
import os, sys, torch
assert "safetensors" not in sys.modules, "the hooks must not import it"
from safetensors.torch import load_file, load_model, save_model
model = torch.nn.Linear(2, 1)
for name, seconds in (("old", 5), ("new", 7)):
    save_model(model, name)
    os.utime(name, (seconds, seconds))
{}
"""


def test_every_function_that_loads_a_file_records_its_time(tmp_path: Path) -> None:
    for loads, seconds in (
        ("load_file('old')", 5),
        ("load_file(filename='new')", 7),
        ("load_model(model, 'new')", 7),
        ("", 0),
    ):
        seen = run(tmp_path, SCRIPT.format(loads), python=INTERPRETER)
        assert seen.loaded == seconds * 10**9
