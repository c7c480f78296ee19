"""No private file of this machine is sent with a job's requirements, unless the user names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kitctl.base.errors import SpecError
from kitctl.cli.main import main
from kitctl.code import credentials
from kitctl.code.code_tree import SentFolder, Sources
from kitctl.code.requirements.collecting import collect
from kitctl.code.requirements.consent import TEXT_LIMIT
from kitctl.code.workdir.reading import content
from kitctl.spec.job_spec import JobSpec
from kitjob.sections import Requirements
from tests.wheels import wheel

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"
NETRC = "machine github.com login bob password hunter2\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with private files, and a cloned project in it."""
    files = {".ssh/id_rsa": KEY, ".netrc": NETRC, "limits.txt": "alpha<2\n", "project/.env": "alpha==1\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    wheel(tmp_path / "backups", "private", "1.0")
    wheel(tmp_path / "project" / "wheels", "alpha", "1.0")
    wheel(tmp_path / "project" / ".hidden", "alpha", "1.0")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def sent(home: Path, *lines: str, links: tuple[str, ...] = (), folder: str = "project") -> SentFolder:
    (home / "project" / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    file = "requirements.txt" if folder == "project" else "project/requirements.txt"
    return collect(Requirements(file=file, find_links=links), home / folder)


def refusal(attempt: Callable[[], object]) -> str:
    with pytest.raises(SpecError) as raised:
        attempt()
    return str(raised.value)


@pytest.mark.parametrize("folder", ["project", ""])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-c ../limits.txt", "is outside of"),
        ("-r {home}/limits.txt", "is outside of"),
        ("-c {home}/.netrc", "is outside of"),
        ("-c ../../../..", "is outside of"),
        ("-c .env", ".env is hidden"),
        ("-c innocent.txt", "innocent.txt is hidden"),
        ("-c away.txt", "away.txt is outside of"),
        ("--find-links ~/backups", "fix: to send its wheels, name it yourself: --find-links"),
        ("-f ../backups", "is outside of"),
        ("-f away", "away is outside of"),
        ("-f .hidden", ".hidden is hidden"),
        ("-f {home}/backups", "is outside of"),
    ],
)
def test_lines_name_only_what_is_in_the_project(home: Path, line: str, words: str, folder: str) -> None:
    (home / "project" / "innocent.txt").symlink_to(".env")
    (home / "project" / "away.txt").symlink_to(home / "limits.txt")
    (home / "project" / "away").symlink_to(home / "backups")
    assert words in refusal(lambda: sent(home, "alpha", line.format(home=home), folder=folder))


def test_a_project_has_files_above_the_requirements(home: Path) -> None:
    """As in ``requirements/train.txt`` with ``-r ../base.txt``, submitted from the project's folder."""
    (home / "project" / "deps").mkdir()
    (home / "project" / "deps" / "train.txt").write_text("-r ../base.txt\n--find-links ../wheels\n")
    (home / "project" / "base.txt").write_text("alpha\n")
    found = collect(Requirements(file="deps/train.txt"), home / "project")
    assert [*found.tree.files] == ["requirements.txt", "wheels/alpha-1.0-py3-none-any.whl"]
    elsewhere = refusal(
        lambda: collect(Requirements(file=str(home / "project" / "deps" / "train.txt")), home / "backups")
    )
    assert f"base.txt is outside of {home / 'project' / 'deps'}" in elsewhere


def test_what_the_user_names_is_sent(home: Path) -> None:
    (home / "project" / "away").symlink_to(home / "backups")
    found = sent(home, "private", "--find-links away", links=("~/backups",))
    assert [*found.tree.files] == ["requirements.txt", "wheels/private-1.0-py3-none-any.whl"]
    assert sent(home, "alpha", links=(".hidden",)).tree.files.keys() >= {"wheels/alpha-1.0-py3-none-any.whl"}
    assert "is a link to" in refusal(lambda: sent(home, "private", links=("away",))), "a link came with the project"
    (home / "project" / "linked.txt").symlink_to(home / "limits.txt")
    named = refusal(lambda: collect(Requirements(file="linked.txt"), home / "project"))
    assert f"fix: name it as {home / 'limits.txt'}" in named
    assert collect(Requirements(file=str(home / "limits.txt")), home / "project").tree.files


def test_a_folder_of_wheels_sends_only_packages_of_its_own(home: Path) -> None:
    wheels = home / "project" / "wheels"
    (wheels / "beta-1.0-py3-none-any.whl").write_text("no archive\n")
    (wheels / "photos.zip").write_bytes((wheels / "alpha-1.0-py3-none-any.whl").read_bytes())
    (wheels / "home-2026.tar.gz").write_bytes(b"\x1f\x8b")
    found = sent(home, "alpha", links=("wheels",))
    assert [*found.tree.files] == ["requirements.txt", "wheels/alpha-1.0-py3-none-any.whl"]
    assert found.left_out == {"no package": ("beta-1.0-py3-none-any.whl", "home-2026.tar.gz", "photos.zip")}
    (wheels / "gamma-1.0-py3-none-any.whl").symlink_to(home / ".ssh" / "id_rsa")
    assert "id_rsa, outside of" in refusal(lambda: sent(home, "alpha", links=("wheels",)))
    assert "id_rsa, outside of" in refusal(lambda: sent(home, "alpha", "-f wheels"))


@pytest.mark.parametrize(
    "line",
    [
        "API_KEY=sk-0123456789abcdef0123",
        NETRC.strip(),
        "password hunter2",
        "aws_secret_access_key = abcdef",
        "export TOKEN=hunter2",
        "user:hunter2",
        "KEY=(hunter2)",
        "name >= 1 hunter2",
    ],
)
def test_a_line_of_a_private_file_is_no_requirement_and_not_shown(home: Path, line: str) -> None:
    message = refusal(lambda: sent(home, "alpha", line))
    assert "requirements.txt, line 2" in message
    assert "is not a requirement" in message
    assert not any(secret in message for secret in ("hunter2", "sk-", "abcdef"))


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a.b_c-d",
        "a==1.0",
        "a >= 1.0, < 2 ; python_version < '4'",
        "a[x, y]~=1.0",
        "a (>=1.0)",
        "a===1.0+cu126",
        "a!=1.*",
        "a==1!2.0",
        "a @ https://host/a.zip#sha256=00",
        "a[x]@git+https://host/a.git@main ; sys_platform == 'linux'",
        "a>=1,",
        "a==1 --hash=sha256:00",
        "a; extra == 'x'",
    ],
)
def test_each_form_of_a_requirement_is_one(home: Path, line: str) -> None:
    assert line in content(sent(home, line), "requirements.txt").decode()


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("pipe", "pipe is not a file"),
        ("/dev/zero", "/dev/zero is not a file"),
        ("wheels", "wheels is not a file"),
        ("large.txt", "has more than"),
        ("binary.txt", "is binary"),
    ],
)
def test_only_a_text_of_sensible_size_is_read(home: Path, file: str, words: str) -> None:
    os.mkfifo(home / "project" / "pipe")
    (home / "project" / "large.txt").write_bytes(b"#" * (TEXT_LIMIT + 1))
    (home / "project" / "binary.txt").write_bytes(b"alpha\0\n")
    assert words in refusal(lambda: collect(Requirements(file=file), home / "project"))
    by_a_line = refusal(lambda: sent(home, "alpha", f"-c {file}"))
    assert (words if file != "/dev/zero" else "is outside of") in by_a_line


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--index-url https://me:hunter2@host/simple", True),
        ("--find-links https://me:hunter2@host/links", True),
        ("alpha @ git+https://ghp_0123456789abcdef0123@host/a.git", True),
        ("alpha @ git+https://0123456789abcdef0123456789abcdef@host/a.git", True),
        ("--index-url https://me:${TOKEN}@host/simple", False),
        ("alpha @ git+https://${TOKEN_OF_THIS_PROJECT}@host/a.git", False),
        ("alpha @ git+ssh://git@host/a.git", False),
        ("alpha @ https://host/a.zip", False),
    ],
)
def test_a_credential_in_a_line_is_a_warning(home: Path, line: str, found: bool) -> None:  # noqa: FBT001
    spec = JobSpec(name="job", requirements=Requirements(file="requirements.txt"))
    warnings = [*credentials.warnings(spec, Sources(requirements=sent(home, "alpha", line)))]
    assert len(warnings) == found
    assert all("a line of requirements.txt has a password or token" in one for one in warnings)
    assert "hunter2" not in str(warnings)


def test_a_user_sees_the_warning_and_what_is_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home / "project")
    (home / "project" / "train.py").touch()
    sent(home, "alpha", "-i https://me:hunter2@host/simple")
    words = ["render", "--requirements", "requirements.txt", "--find-links", "wheels", "-o", "name", "--", "train.py"]
    assert main(words) == 0
    assert capsys.readouterr().err.count("a line of requirements.txt has a password") == 1
    (home / "project" / "wheels" / "x-1.0-py3-none-any.whl").symlink_to(home / ".ssh" / "id_rsa")
    assert main(words) == 2
    assert "id_rsa, outside of" in capsys.readouterr().err
