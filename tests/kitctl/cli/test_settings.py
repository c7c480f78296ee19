"""Variables, profiles, and what ``kitctl config`` says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kitctl.base.errors import SpecError, UsageError
from kitctl.cli.main import main
from kitctl.input import profiles
from tests.kitctl.localjobs import ended_job

CONFIG = """
default-profile = "research"

[profile.research]
target = "local"
namespace = "team"
image = "registry.example/team:7"
snapshots.keep = 5

[profile.other]
nodes = 3
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "kitctl" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(CONFIG, encoding="utf-8")
    return path


def out(*words: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(words) == code
    printed = capsys.readouterr()
    return printed.out if code == 0 else printed.err


def rendered(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str | int]:
    job = json.loads(out("render", *words, "-o", "json", capsys=capsys))["items"][-1]
    image = job["spec"]["template"]["spec"]["containers"][0]["image"]
    return {"namespace": job["metadata"]["namespace"], "image": image, "nodes": job["spec"]["completions"]}


def test_flags_win_over_variables_over_the_file_over_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rendered(capsys=capsys) == {"namespace": "team", "image": "registry.example/team:7", "nodes": 1}
    (tmp_path / "job.yaml").write_text("image: of-the-file\nnodes: 2\n")
    job = ("-f", str(tmp_path / "job.yaml"))
    assert rendered(*job, capsys=capsys) == {"namespace": "team", "image": "of-the-file", "nodes": 2}
    monkeypatch.setenv("KITCTL_IMAGE", "of-the-variable")
    monkeypatch.setenv("KITCTL_RENDER_NODES", "4")
    assert rendered(*job, capsys=capsys) == {"namespace": "team", "image": "of-the-variable", "nodes": 4}
    assert rendered(*job, "--image", "of-the-flag", "--nodes", "5", capsys=capsys) == {
        "namespace": "team",
        "image": "of-the-flag",
        "nodes": 5,
    }


def test_another_profile_is_selected_by_option_or_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rendered("--profile", "other", capsys=capsys)["nodes"] == 3
    monkeypatch.setenv("KITCTL_PROFILE", "other")
    assert rendered(capsys=capsys)["nodes"] == 3
    assert rendered("--profile", "research", capsys=capsys)["nodes"] == 1


def test_a_profile_selects_target_and_namespace_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    ended_job("of-the-team", namespace="team")
    ended_job("of-nobody")
    assert out("list", "-o", "name", capsys=capsys) == "of-the-team\n"
    assert out("list", "-n", "default", "-o", "name", capsys=capsys) == "of-nobody\n"


def test_an_option_has_a_variable_of_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended_job("job", namespace="team", lines=("[rank 0]: a",))
    monkeypatch.setenv("KITCTL_LOGS_TIMESTAMPS", "1")
    monkeypatch.setenv("KITCTL_DELETE_OUTPUTS", "1")  # of another command
    assert out("logs", "job", capsys=capsys) == "2026-01-01T00:00:00.000000Z [rank 0]: a\n"


def test_a_variable_of_no_option_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("KITCTL_GPUS", "KITCTL_NODES", "KITCTL_DEBUG", "KITCTL_LOGS_TIMESTAMP", "KITCTL_ZZZZ"):
        monkeypatch.setenv(name, "0" if name == "KITCTL_DEBUG" else "1")
    assert main(["version"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "warning: KITCTL_GPUS is no variable of kitctl; did you mean KITCTL_GPUS_PER_NODE?",
        "warning: KITCTL_LOGS_TIMESTAMP is no variable of kitctl; did you mean KITCTL_LOGS_TIMESTAMPS?",
        "warning: KITCTL_ZZZZ is no variable of kitctl; see docs/command-line.md",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nodes = ", "cannot be read"),
        ("nodes = 3", "unknown key 'nodes'"),
        ("[profile.default]\nnods = 3", "nods: unknown key; fix: did you mean nodes"),
        ("[profile.default]\ntarget = 3", "profile.default.target is no text"),
        ('default-profile = "x"', "has no profile 'x'"),
        ("profile = 3\n" + 'default-profile = "x"', "has no profile 'x'"),
    ],
)
def test_a_mistake_in_the_file_is_told(text: str, error: str, config: Path) -> None:
    config.write_text(text, encoding="utf-8")
    with pytest.raises((UsageError, SpecError), match=error):
        profiles.load()


def test_without_a_file_there_is_no_profile(config: Path) -> None:
    config.unlink()
    assert profiles.load() == profiles.Profile()
    with pytest.raises(UsageError, match="there is no profile 'x'"):
        profiles.load("x")


def test_the_file_of_earlier_versions_is_refused_with_what_to_do(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.with_name("defaults.yaml").write_text("image: x\n")
    told = out("render", capsys=capsys, code=2)
    assert "defaults.yaml is not read any more" in told
    assert "fix: move its keys to [profile.default]" in told


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (
            "snapshots.keep",
            [
                "Number of latest snapshots",
                "Default          3",
                "--keep N",
                "KITCTL_KEEP",
                "Now              5, from profile research",
            ],
        ),
        ("--gpus-per-node", ["gpusPerNode", "KITCTL_GPUS_PER_NODE", "0, built in"]),
        ("image", ["ConfigMap kitctl-defaults", "registry.example/team:7, from profile research"]),
        ("policy.deadline", ["90s or 1h30m", "none, built in"]),
        ("nodes", ["4, from $KITCTL_NODES"]),
    ],
)
def test_a_key_is_explained(
    key: str, told: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KITCTL_NODES", "4")
    text = out("config", "explain", key, capsys=capsys)
    assert [one for one in told if one not in text] == [], text


def test_an_unknown_key_names_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean snapshots?" in out("config", "explain", "snapshot.keep", capsys=capsys, code=2)


def test_show_names_each_setting_with_its_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KITCTL_IMAGE", "mine")
    lines = out("config", "show", capsys=capsys).splitlines()
    assert lines[0] == "profile   research"
    assert lines[3:] == [
        "image            mine   ($KITCTL_IMAGE)",
        'namespace        "team"   (profile research)',
        "snapshots.keep   5   (profile research)",
        'target           "local"   (profile research)',
    ]
