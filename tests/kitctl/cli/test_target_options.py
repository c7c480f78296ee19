"""The addresses of mirrors, where commands take them instead of a job's name."""

from __future__ import annotations

import pytest

from kitctl.cli.main import main


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("s3://", "it lacks the bucket"),
        ("s3:///", "it lacks the bucket"),
        ("s3:///runs/digits", "it lacks the bucket"),
        ("s3://bucket", "it lacks the prefix"),
        ("s3://bucket/", "it lacks the prefix"),
        ("s3://Bucket/runs", "no such name"),
        ("s3://bucket/a//b", "no such name"),
        ("s3://bucket/a b", "no such name"),
    ],
)
@pytest.mark.parametrize("command", [("snapshots", "list"), ("audit",)])
def test_an_address_that_is_none_is_refused_before_a_store_is_asked(
    command: tuple[str, ...], address: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, address]) == 2
    told = capsys.readouterr().err
    assert f"{address!r}: {wrong}" in told
    assert "s3://BUCKET/PREFIX" in told
    assert "credentials" not in told


def test_a_slash_at_the_end_is_none_of_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def snapshots(url: str) -> None:
        asked.append(url)
        raise KeyboardInterrupt  # that is all

    monkeypatch.setattr("kitctl.api.mirror.of_mirror", snapshots)
    main(["snapshots", "list", "s3://bucket/runs/digits/"])
    assert asked == ["s3://bucket/runs/digits"]
