"""The allreduce workload: a correct sum, the table, its arithmetic and its bad arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kittrain import World
from kittrain.workloads import allreduce
from kittrain.workloads.allreduce import Result
from tests.trainer.worlds import Ranks

ROW = re.compile(r"^ +(\d+ (?:B|[KMG]iB)) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)(?:  #+)?$", re.MULTILINE)


@pytest.mark.slow
def test_ranks_check_the_sum_and_print_a_row_for_each_size(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, "kittrain.workloads.allreduce", "-b", "4K", "-e", "1M", "--seconds", "0.01")
    assert ranks.run(3) == [0, 0, 0]
    output = ranks.log.read_text()
    assert "sum of ranks 3, correct for 3 ranks (gloo, cpu)" in output
    rows = ROW.findall(output)
    assert [size for size, *_ in rows] == ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB"]


def test_a_lone_process_has_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    allreduce.main([])
    assert capsys.readouterr().out == "sum of ranks 0, correct for 1 rank (a lone process: nothing to measure)\n"


def test_a_wrong_sum_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "sum", lambda _, tensor: tensor + 1)
    with pytest.raises(SystemExit, match=r"wrong sum: 1 for the ranks, which add up to 0, and 100000 of 100000"):
        allreduce.main([])


def test_bandwidths_are_those_of_nccl_tests() -> None:
    result = Result(size=4 << 20, repeats=10, seconds=0.001, ranks=4)
    assert result.algbw == pytest.approx(4.194304e9)
    assert result.busbw == pytest.approx(6.291456e9)
    (row,) = ROW.findall(allreduce.table([result]))
    assert row[2:] == ("1000.0", "4.194", "6.291")


def test_the_longest_bar_is_that_of_the_highest_bandwidth() -> None:
    rows = allreduce.table([Result(1024, 1, 1.0, 2), Result(4096, 1, 2.0, 2)]).splitlines()[1:]
    assert [row.count("#") for row in rows] == [allreduce.BAR // 2, allreduce.BAR]


def test_the_plot_is_an_image(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    allreduce.plot([Result(1024, 1, 1.0, 2), Result(4096, 1, 2.0, 2)], str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("smallest", "largest", "sizes"), [(4096, 65536, [4096, 16384, 65536]), (1, 15, [4]), (6, 16, [4, 16])]
)
def test_sizes_are_whole_elements(smallest: int, largest: int, sizes: list[int]) -> None:
    assert allreduce.sizes(smallest, largest) == sizes


@pytest.mark.parametrize(("text", "size"), [("5", 5), ("4k", 4096), ("64M", 64 << 20), ("2GiB", 2 << 30), ("8B", 8)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert allreduce.in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "K", "-4", "0", "1.5M", "4T", "four"])
def test_an_invalid_size_is_an_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        allreduce.main([f"--max-bytes={text}"])
    assert "is not a size like 4K, 64M or 1G" in capsys.readouterr().err


def test_a_plot_without_matplotlib_is_an_error_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "matplotlib" else name)
    with pytest.raises(SystemExit, match="pip install matplotlib"):
        allreduce.main(["--plot", "plot.png"])


def test_sizes_in_the_wrong_order_are_an_error() -> None:
    with pytest.raises(SystemExit, match="--max-bytes 4096 is less than --min-bytes 8192"):
        allreduce.main(["-b", "8K", "-e", "4K"])
