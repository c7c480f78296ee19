"""Equal lines and frames of libraries are folded, each rank by itself; nothing of the user's is lost."""

from __future__ import annotations

from kitctl.state.log_folding import folded, folded_traceback
from kitctl.state.logs import Line

TORCH = "/v/site-packages/torch/nn/modules/module.py"


def fold(*texts: str) -> list[str]:
    lines = [Line(f"2026-01-01T00:00:{at:02}Z", 0, text) for at, text in enumerate(texts)]
    return [line.text for line in folded(iter(lines))]


def frame(file: str, line: int = 1) -> list[str]:
    return [f'[rank 0]:   File "{file}", line {line}, in call', "[rank 0]:     return call()", "[rank 0]:     ^^^^^^"]


def test_equal_lines_are_counted_and_few_are_shown() -> None:
    many = ["[rank 0]: warning"] * 40_000
    assert fold(*many, "[rank 0]: end") == ["[rank 0]: warning", "[rank 0]: ... 39,999 more like this", "[rank 0]: end"]
    assert fold(*many[:3], "[rank 0]: end") == [*many[:3], "[rank 0]: end"]
    assert fold(*many[:4]) == ["[rank 0]: warning", "[rank 0]: ... 3 more like this"]


def test_each_rank_is_folded_by_itself() -> None:
    mixed = [f"[rank {rank}]: same" for _ in range(9) for rank in range(2)]
    assert fold(*mixed) == [
        "[rank 0]: same",
        "[rank 1]: same",
        "[rank 0]: ... 8 more like this",
        "[rank 1]: ... 8 more like this",
    ]


def test_the_first_of_equal_lines_is_shown_at_once() -> None:
    lines = folded(Line("2026-01-01T00:00:00Z", 0, text) for text in ["[rank 0]: a", *["[rank 0]: b"] * 5])
    assert [next(lines).text, next(lines).text] == ["[rank 0]: a", "[rank 0]: b"]


def test_frames_of_libraries_are_counted_but_for_the_last() -> None:
    user, library = frame("/w/train.py"), frame(TORCH)
    head, error = "[rank 0]: Traceback (most recent call last):", "[rank 0]: ValueError: x"
    assert fold(head, *user, *library * 12, *user, *library * 3, error) == [
        head,
        *user,
        "[rank 0]:   ... 12 frames of torch",
        *user,
        "[rank 0]:   ... 2 frames of torch",
        *library,
        error,
    ]
    assert fold(head, *user, *library, *user, error) == [head, *user, "[rank 0]:   ... 1 frame of torch", *user, error]


def test_the_users_frames_stay_also_if_they_are_equal() -> None:
    recursion = frame("/w/train.py") * 30
    assert fold(*recursion) == recursion


def test_other_lines_are_unchanged() -> None:
    texts = ["", "[agent 0]: node 0 of 2", "[rank 1]:     indented", "no prefix", "[rank 1]: ", "[rank 1]: 1"]
    assert fold(*texts) == texts


def test_a_traceback_is_folded_like_a_log() -> None:
    user, library = ([line.removeprefix("[rank 0]: ") for line in frame(file)] for file in ("/w/train.py", TORCH))
    head = "Traceback (most recent call last):"
    traceback = "\n".join([head, *user, *library * 4])
    assert folded_traceback(f"{traceback}\n") == [head, *user, "  ... 3 frames of torch", *library]
