"""Only one module of the command line prints and prompts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kitctl import cli
from kitctl.base.errors import TargetError, UsageError
from kitctl.cli import common

FOLDER = Path(cli.__file__).parent


def test_no_other_module_prints_or_prompts() -> None:
    """Otherwise ranks' output could control the terminal, or an irreversible action run without a prompt."""
    modules = [*FOLDER.rglob("*.py"), FOLDER.parent / "__main__.py"]
    printing = [path.name for path in modules if re.search(r"click\.(echo|secho|confirm)|\bprint\(", path.read_text())]
    assert printing == ["common.py"]


def test_output_and_messages_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    common.echo("a\n\x1b[2Jb\udcff")
    common.info("\x1b]0;mine\x07")
    assert capsys.readouterr() == ("a\n\\x1b[2Jb\\udcff\n", "\\x1b]0;mine\\x07\n")


def test_json_holds_no_control_characters() -> None:
    assert common.encode({"reason": "\x9b2J \u202e \x7f"}) == '{\n  "reason": "\\u009b2J \\u202e \\u007f"\n}'


def test_without_a_terminal_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as after <&-
    with pytest.raises(UsageError, match=r"delete all\? confirmation needed") as caught:
        common.confirm("delete all?", yes=False)
    assert (caught.value.exit_code, caught.value.fix) == (2, "give -y (--yes)")
    common.confirm("delete all?", yes=True)


@pytest.mark.parametrize(("answer", "confirmed"), [("y", True), ("n", False), ("", False)])
def test_in_a_terminal_the_user_is_prompted(answer: str, monkeypatch: pytest.MonkeyPatch, *, confirmed: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _prompt: answer)
    if confirmed:
        common.confirm("delete all?", yes=False)
        return
    with pytest.raises(click.Abort):
        common.confirm("delete all?", yes=False)


def test_a_file_is_written_whole_or_its_error_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("absent", "file"):
        with pytest.raises(TargetError, match=r"x\.svg cannot be written: No"):
            common.save(tmp_path / folder / "x.svg", [b"<svg/>"])
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert common.save(tmp_path / "x.svg", [b"<svg", b"/>"]) == 6
    assert (tmp_path / "x.svg").read_bytes() == b"<svg/>"


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_a_dash_is_the_standard_output_and_no_file(name: str, tmp_path: Path) -> None:
    program = f"from pathlib import Path; from kitctl.cli.common import save; save(Path({name!r}), [b'a', b'b'])"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True)
    assert (done.stdout, [*tmp_path.iterdir()]) == (b"ab", [])


def test_a_device_or_a_link_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe, link, aim = tmp_path / "pipe", tmp_path / "link", tmp_path / "aim"
    os.mkfifo(pipe)
    link.symlink_to(aim)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert common.save(pipe, [b"x"], private=True) == 1
        assert os.read(reader, 10) == b"x"
    finally:
        os.close(reader)
    assert common.save(link, [b"ab"], private=True) == 2
    assert (pipe.is_fifo(), link.is_symlink(), aim.read_bytes()) == (True, True, b"ab")
