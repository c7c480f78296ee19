from __future__ import annotations

import pytest

from kitctl.cli.main import main
from kitctl.code.code_tree import NO_SOURCES, Sources
from kitctl.code.credentials import warnings
from kitctl.spec.job_spec import JobSpec

HF = "hf_" + "a1B2" * 8
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"


@pytest.mark.parametrize(
    "name",
    ["WANDB_API_KEY", "HF_TOKEN", "TOKEN", "MY_SECRET", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "apikey"],
)
def test_names_of_credentials(name: str) -> None:
    (warning,) = warnings(JobSpec(env={name: "x"}), NO_SOURCES)
    assert warning.startswith(f"env.{name} looks like a credential")
    assert f"--secret {name}=SECRET/KEY" in warning


@pytest.mark.parametrize(
    "value",
    [
        *(HF, "ghp_" + "x" * 36, "AKIA" + "A" * 16, "sk-" + "0" * 20, KEY, "glpat-" + "x" * 20, "npm_" + "a" * 36),
        *("dckr_pat_" + "a" * 27, "pypi-AgEIcHlwaS5vcmc" + "C" * 20, "AIza" + "b" * 35),
    ],
)
def test_values_of_credentials(value: str) -> None:
    assert len([*warnings(JobSpec(env={"A": value}), NO_SOURCES)]) == 1
    assert next(iter(warnings(JobSpec(args=("--x", f"--y={value}")), NO_SOURCES))).startswith(
        "args[1] looks like a credential"
    )
    assert next(iter(warnings(JobSpec(), Sources(files={"lib/a.txt": f"a\n{value}\n"})))).startswith(
        "the file lib/a.txt looks like"
    )


@pytest.mark.parametrize(
    "path",
    [
        *(".env", "a/.env.local", "x.pem", "server.key", "id_rsa", ".netrc", "my-credentials.json", "token"),
        *("hf_token", "prod.env", ".kube/config", "a/.aws/config", ".docker/config.json"),
    ],
)
def test_files_of_credentials(path: str) -> None:
    assert len([*warnings(JobSpec(), Sources(files={path: "x"}))]) == 1


@pytest.mark.parametrize(
    "line",
    [
        "WANDB_API_KEY=" + "0123456789" * 4,
        "export TOKEN='" + "a1" * 12 + "'",
        'KEY = TOKEN = 1\nAPI_KEY = "' + "a1" * 9 + 'bc"',
    ],
)
def test_a_file_that_sets_a_credential(line: str) -> None:
    assert len([*warnings(JobSpec(), Sources(files={"run.sh": f"set -e\n{line}\n"}))]) == 1


def test_what_is_not_a_credential() -> None:
    env = {
        "TOKENIZERS_PARALLELISM": "false",
        "MAX_TOKENS": "512",
        "LEARNING_RATE": "1e-3",
        "KEYBOARD": "x",
        "EMPTY_KEY": "",
    }
    lines = (
        "API_KEY = os.environ['WANDB_API_KEY']",
        "TOKEN=$TOKEN",
        "API_KEY = settings.api_key_of_host_1",
        "API_KEY=",
    )
    text = "\n".join(("import torch", *lines, "PAD_TOKEN = 'x'", ""))
    paths = (
        "environment.py",
        "env.py",
        "config",
        ".venv.txt",
        "aws/config",
        "train.py",
        "tokenizer.py",
        "tokens.txt",
        "secrets.py",
        "key.py",
        "tokenizer.json",
        "keys/model.py",
    )
    assert not [*warnings(JobSpec(env=env, args=("--sk-learn", "x")), Sources(files=dict.fromkeys(paths, text)))]


def test_render_and_dry_run_warn_about_credentials(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "mine")
    for command in (["render"], ["submit", "--dry-run=client"]):
        assert main([*command, "-e", "WANDB_API_KEY", "-o", "name"]) == 0
        stderr = capsys.readouterr().err
        assert stderr.count("warning: env.WANDB_API_KEY looks like a credential") == 1
        assert "mine" not in stderr
