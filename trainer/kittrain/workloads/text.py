"""Trains a transformer to classify passages of documentation: Python's, NumPy's, SymPy's or PyTorch's.

    torchrun --nproc-per-node 2 -m kittrain.workloads.text
    kitctl submit --nodes 3 --gpus-per-node 4 -m kittrain.workloads.text --model bert

The text is the docstrings of these packages, which are installed wherever this runs. The names of the libraries are
removed from it, and no file has passages in both training and test data. ``--model bert`` is BERT's architecture in
small, from the package transformers, with random weights.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sysconfig
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, Training, evaluate, join
from kittrain.workloads.schedule import warmup_and_decay

LIBRARIES: Final = ("Python", "NumPy", "SymPy", "PyTorch")
MODULES: Final = {"NumPy": "numpy", "SymPy": "sympy", "PyTorch": "torch"}
PARTS: Final = {"PyTorch": ("nn", "optim", "distributed", "utils/data", "autograd", "distributions")}  # of thousands
PYTHON: Final = (
    "asyncio",
    "concurrent",
    "email",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "unittest",
)
PASSAGES: Final = 5000  # of each library
SHORTEST: Final = 60  # characters of a passage
TEST_EVERY: Final = 5  # every fifth file is for evaluation only
WORDS: Final = 8192  # size of the vocabulary; 0 is padding
DOCSTRING: Final = re.compile(r'"""(.*?)"""', re.DOTALL)
NAMES: Final = re.compile(r"python|numpy|\bnp\b|sympy|pytorch|torch", re.IGNORECASE)
WORD: Final = re.compile(r"[a-z]+|\d|[^\sa-z\d]")


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print the accuracy on the test passages."""
    args = options().parse_args(argv)
    if args.model == "bert" and not importlib.util.find_spec("transformers"):
        raise SystemExit("text: --model bert needs the package transformers: pip install transformers")
    with join(seed=args.seed) as world:
        train, test = passages(args.length)
        model: nn.Module = (Bert if args.model == "bert" else Classifier)(args)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
        data = Data(train, batch=args.batch_size, seed=args.seed)
        steps = args.epochs * data.order.steps_per_epoch
        Training(
            world,
            model,
            optimizer,
            loss,
            data,
            epochs=args.epochs,
            scheduler=warmup_and_decay(optimizer, steps=steps),
            on_epoch=lambda _: {"accuracy": evaluate(world, model, test, correct)},
        ).fit()
        accuracy = evaluate(world, model, test, correct)
        world.print(f"accuracy {100 * accuracy:.2f} % on {len(test)} test passages of {len(LIBRARIES)} libraries")


class Classifier(nn.Module):
    """Words (n, time) in, 0 where there is none; a score for each library (n, 4) out."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, args.width, padding_idx=0)
        nn.init.normal_(self.words.weight, std=0.02)  # torch's default of 1 overfits
        self.positions = nn.Parameter(torch.randn(args.length, args.width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            args.width, args.heads, 4 * args.width, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False)
        self.scores = nn.Linear(args.width, len(LIBRARIES))

    def forward(self, words: Tensor) -> Tensor:
        """The mean over a passage's positions, as scores."""
        padding = words == 0
        states = self.layers(self.words(words) + self.positions, src_key_padding_mask=padding)
        mean = states.masked_fill(padding[..., None], 0).sum(dim=1) / (~padding).sum(dim=1, keepdim=True)
        return cast("Tensor", self.scores(mean))


class Bert(nn.Module):
    """As ``Classifier``, with the architecture of BERT."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        transformers = importlib.import_module("transformers")
        config = transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=args.heads,
            intermediate_size=4 * args.width,
            max_position_embeddings=args.length,
            num_labels=len(LIBRARIES),
        )
        self.bert = transformers.BertForSequenceClassification(config)

    def forward(self, words: Tensor) -> Tensor:
        """The scores."""
        return cast("Tensor", self.bert(input_ids=words, attention_mask=(words != 0).long()).logits)


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Mean cross-entropy."""
    words, libraries = batch
    return functional.cross_entropy(model(words.long()), libraries)


def correct(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Whether each passage is classified correctly, (n,) bool."""
    words, libraries = batch
    scores: Tensor = model(words.long())
    return scores.argmax(dim=1) == libraries


def passages(length: int) -> tuple[TensorDataset, TensorDataset]:
    """Training and test passages as numbers of words (n, length) int16, with the number of their library (n,)."""
    texts: dict[str, tuple[int, bool]] = {}
    for library, name in enumerate(LIBRARIES):
        found = {text: is_test for text, is_test in _texts(name) if text not in texts}
        stride = max(1, len(found) // PASSAGES)
        texts |= {text: (library, is_test) for text, is_test in [*found.items()][::stride][:PASSAGES]}
    words = torch.tensor([numbers(text, length) for text in texts], dtype=torch.int16)
    libraries, is_test = (torch.tensor(values) for values in zip(*texts.values(), strict=True))
    train, test = (TensorDataset(words[which], libraries[which]) for which in (~is_test, is_test))
    return train, test


def _texts(library: str) -> Iterator[tuple[str, bool]]:
    """Each paragraph of the docstrings of a library, and whether it is for evaluation only."""
    for number, file in enumerate(_files(library)):
        for docstring in DOCSTRING.findall(file.read_text(encoding="utf-8", errors="replace")):
            for paragraph in docstring.split("\n\n"):
                text = " ".join(NAMES.sub(" ", paragraph.lower()).split())
                if len(text) >= SHORTEST:
                    yield text, number % TEST_EVERY == TEST_EVERY - 1


def _files(library: str) -> list[Path]:
    """Its modules, less tests; of Python, those of the standard library's top level and some packages."""
    if library == "Python":
        root = Path(sysconfig.get_path("stdlib"))
        return sorted({*root.glob("*.py"), *(file for name in PYTHON for file in (root / name).rglob("*.py"))})
    package = importlib.util.find_spec(MODULES[library])
    if package is None or not package.submodule_search_locations:
        raise SystemExit(f"text: {library}, whose documentation is classified, is not installed")
    root = Path(package.submodule_search_locations[0])
    files = (file for part in PARTS.get(library, [""]) for file in (root / part).rglob("*.py"))
    return sorted(file for file in files if "test" not in file.relative_to(root).as_posix())


def numbers(text: str, length: int) -> list[int]:
    """Its first words as numbers from 1 on, that depend on the word alone; 0 from the end of the text on."""
    found = [1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in WORD.findall(text)[:length]]
    return found + [0] * (length - len(found))


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser("text", description="Train a transformer to tell libraries' documentation apart.")
    parser.add_argument("--model", choices=("small", "bert"), default="small", help="bert needs transformers")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="passages per step, over all ranks")
    parser.add_argument("--length", type=int, default=64, help="words of a passage that are read")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64, help="numbers that describe a word")
    parser.add_argument("--heads", type=int, default=4, help="of the attention")
    parser.add_argument("--lr", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the data order")
    return parser


if __name__ == "__main__":
    main()
