"""Transformers' ``run_clm.py``: a rank is killed, and the job ends with the model of an undisturbed one.

kitctl is in one environment and the frameworks are in another, as on most machines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kitctl.targets.local.folder import state_home
from tests.frameworks.jobs import kitctl, until
from tests.frameworks.marks import MARKS
from tests.frameworks.ranks import SCRIPTS
from tools.test_frameworks import INTERPRETER, ROOT

pytestmark = MARKS

TOKENIZER: Final = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
tokenizer.train([sys.argv[1]], trainers.BpeTrainer(vocab_size=512, special_tokens=["<|endoftext|>"]))
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(sys.argv[2])
"""
STEPS: Final = 200
ARGUMENTS: Final = (
    *("--model_type", "gpt2", "--config_overrides", "n_embd=32,n_layer=2,n_head=2,vocab_size=512,n_positions=64"),
    *("--do_train", "--do_eval", "--block_size", "32", "--per_device_train_batch_size", "4", "--report_to", "none"),
    *("--max_steps", str(STEPS), "--save_steps", "10", "--logging_steps", "1", "--learning_rate", "1e-3"),
)


@pytest.fixture
def jobs() -> Iterator[list[str]]:
    """Names of jobs that are deleted afterwards."""
    names: list[str] = []
    yield names
    for name in names:
        kitctl("delete", name, "--snapshots", "-y")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The arguments for text and tokenizer."""
    pages = [path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    lines = [line for page in pages for line in page.splitlines() if line]
    assert len(lines) > 400, "both files need lines"
    (tmp_path / "train.txt").write_text("\n".join(lines[:200]))
    (tmp_path / "valid.txt").write_text("\n".join(lines[200:400]))
    make = [str(INTERPRETER), "-c", TOKENIZER, str(tmp_path / "train.txt"), str(tmp_path / "tokenizer")]
    subprocess.run(make, check=True)
    texts = ("--train_file", str(tmp_path / "train.txt"), "--validation_file", str(tmp_path / "valid.txt"))
    return [*texts, "--tokenizer_name", str(tmp_path / "tokenizer"), "--output_dir", str(tmp_path / "output")]


def submit(name: str, cache: Path, files: list[str]) -> None:
    own = ("--python", str(INTERPRETER), "--env", f"HF_DATASETS_CACHE={cache}", "--env", "HF_HUB_OFFLINE=1")
    script = ("--", str(SCRIPTS / "run_clm.py"), *ARGUMENTS, *files)
    kitctl("submit", "--nodes", "3", "--name", name, *own, *script, interpreter=sys.executable)


def results(name: str) -> Path:
    """Where the Trainer's output is: with the job's snapshots."""
    return state_home() / "snapshots" / "default" / name / "huggingface"


def test_a_killed_rank_changes_nothing(tmp_path: Path, jobs: list[str], files: list[str]) -> None:
    jobs += ["clm-whole", "clm-killed"]
    submit("clm-whole", tmp_path / "cache", files)
    kitctl("wait", "clm-whole", "--timeout", "600s")
    submit("clm-killed", tmp_path / "cache", files)
    until("Snapshot   step ", "status", "clm-killed")
    kitctl("drill", "clm-killed", "--fault", "kill-rank", "--rank", "1", "-y")
    kitctl("wait", "clm-killed", "--timeout", "600s")
    logs = kitctl("logs", "clm-killed")
    assert logs.count("distributed training: True") == 6, "three ranks, twice"
    assert "resuming after step" in logs
    assert f"step {STEPS}/{STEPS} (100 %)" in kitctl("status", "clm-killed")
    whole, killed = results("clm-whole"), results("clm-killed")
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert json.loads((killed / "eval_results.json").read_text())["eval_loss"] < 5.5  # of 6.2 with random weights
