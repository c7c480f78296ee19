"""The text workload learns, and its passages have the documented properties."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kittrain.workloads import text
from tests.trainer.worlds import TRAINING_SECONDS, Ranks

ACCURACY = re.compile(r"^accuracy ([\d.]+) % on (\d+) test passages of 4 libraries", re.MULTILINE)


@pytest.mark.wide
@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    ranks = Ranks(
        tmp_path, "kittrain.workloads.text", "--epochs", "1", "--layers", "1", "--width", "32", "--length", "32"
    )
    assert ranks.run(2) == [0, 0]
    found = ACCURACY.search(ranks.log.read_text())
    assert found is not None, ranks.log.read_text()
    assert float(found[1]) > 55  # one in four is chance
    assert int(found[2]) > 2000


@pytest.mark.long
@pytest.mark.timeout(2 * TRAINING_SECONDS)
def test_it_reaches_its_target(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, "kittrain.workloads.text", OMP_NUM_THREADS="1")
    assert ranks.run(2, seconds=TRAINING_SECONDS) == [0, 0]
    found = ACCURACY.search(ranks.log.read_text())
    assert found is not None, ranks.log.read_text()
    assert float(found[1]) >= 77


def test_no_file_is_in_both_parts_and_all_libraries_are() -> None:
    train, test = text.passages(16)
    assert len(test) / (len(train) + len(test)) == pytest.approx(0.2, abs=0.05)
    for part in (train, test):
        shares = part.tensors[1].bincount(minlength=4) / len(part)
        assert shares.min() > 0.15
    for words, _ in (part.tensors for part in (train, test)):
        assert (words >= 0).all()
        assert (words[:, 0] > 0).all()


def test_the_libraries_names_are_removed() -> None:
    for name in text.LIBRARIES[1:]:
        passage, _ = next(text._texts(name))
        assert not re.search(r"numpy|torch|sympy|python", passage)


def test_numbers_depend_on_the_word_alone_and_are_padded() -> None:
    first, second = text.numbers("a tensor, a tensor", 8), text.numbers("the tensor", 8)
    assert first[0] == first[3]
    assert first[1] == second[1]
    assert first[5:] == [0, 0, 0]
    assert text.numbers("a b c", 2) == text.numbers("a b", 2)


@pytest.mark.parametrize("length", [3, 8])
def test_padding_changes_no_score(length: int) -> None:
    args = text.options().parse_args(["--length", "8"])
    torch.manual_seed(0)
    network = text.Classifier(args).eval()
    words = torch.zeros(1, 8, dtype=torch.long)
    words[0, :length] = torch.arange(1, length + 1)
    with torch.no_grad():
        before = network(words)
        network.positions[length:] += 1
        network.words.weight[0] += 1
        assert network(words).allclose(before, atol=1e-6)


def test_bert_without_transformers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "transformers" else name)
    with pytest.raises(SystemExit, match="pip install transformers"):
        text.main(["--model", "bert"])
