"""A package is known by what is in it."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from kitctl.code.requirements.packages import is_package
from tests.wheels import wheel


def test_a_wheel_is_one(tmp_path: Path) -> None:
    assert is_package(wheel(tmp_path, "alpha", "1.0"))
    assert is_package(wheel(tmp_path, "zope.alpha", "1.0+cu126"))


@pytest.mark.parametrize(
    ("name", "member", "expected"),
    [
        ("alpha-1.0.tar.gz", "alpha-1.0/PKG-INFO", True),
        ("alpha-beta-1.0.dev1.tar.gz", "alpha-beta/setup.py", True),
        ("alpha-1.0.zip", "alpha-1.0/pyproject.toml", True),
        ("alpha-1.0.zip", "alpha-1.0/notes.txt", False),
        ("alpha-1.0.tar.gz", "home/me/setup.py", False),
        ("backup.tar.gz", "alpha-1.0/PKG-INFO", False),
        ("alpha-1.0-py3-none-any.whl", "alpha/__init__.py", False),
        ("alpha.whl", "alpha-1.0.dist-info/METADATA", False),
    ],
)
def test_an_archive_is_one_by_its_name_and_its_members(tmp_path: Path, name: str, member: str, expected: bool) -> None:  # noqa: FBT001
    path = tmp_path / name
    if name.endswith(".tar.gz"):
        with tarfile.open(path, "w:gz") as packed:
            packed.addfile(tarfile.TarInfo(member), io.BytesIO())
    else:
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr(member, "")
    assert is_package(path) is expected


@pytest.mark.parametrize("name", ["alpha-1.0-py3-none-any.whl", "alpha-1.0.tar.gz", "alpha-1.0.zip"])
@pytest.mark.parametrize("content", [b"", b"-----BEGIN OPENSSH PRIVATE KEY-----\n", b"\x1f\x8b\x08broken", b"PK\3\4"])
def test_another_file_is_none(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert not is_package(tmp_path / name)
