"""The cache of compiled templates; rendering works without it."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from kitctl.render.template_cache import TemplateCache, user_cache


def render(source: str, cache: TemplateCache | None) -> str:
    loader = jinja2.DictLoader({"a.yaml.j2": source})
    return jinja2.Environment(loader=loader, bytecode_cache=cache, autoescape=True).get_template("a.yaml.j2").render()


def test_a_template_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert render("one", user_cache()) == "one"
    monkeypatch.setattr(jinja2.Environment, "_compile", None)
    assert render("one", user_cache()) == "one"


def test_a_changed_template_is_compiled_again() -> None:
    assert [render(text, user_cache()) for text in ("one", "two", "one")] == ["one", "two", "one"]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\0" * 4096])
def test_a_damaged_entry_is_replaced(content: bytes) -> None:
    render("one", user_cache())
    (entry,) = folder().iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(content)
    assert render("one", user_cache()) == "one"
    assert entry.read_bytes() == whole


def test_a_missing_or_unwritable_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = user_cache()
    folder().rmdir()
    assert render("one", cache) == "one"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert user_cache() is None


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert user_cache() is None


def test_a_folder_that_others_may_write_to_is_not_used() -> None:
    found = folder()
    found.chmod(0o770)
    assert user_cache() is None


def folder() -> Path:
    cache = user_cache()
    assert cache is not None
    return Path(cache.directory)
