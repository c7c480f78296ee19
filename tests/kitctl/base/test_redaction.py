"""What is taken out of texts and data that are handed to others, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base.redaction import MARK, Redactor, secrets_of

SECRET = "s3cr3t-Value.42"


@pytest.mark.parametrize(
    "text",
    [
        f"WANDB_API_KEY={SECRET}",
        f"export AWS_SECRET_ACCESS_KEY='{SECRET}'",
        f"--api-key={SECRET}",
        f"train.py --password {SECRET} --lr 0.1",
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f"https://user:{SECRET}@index.example/simple",
        f"https://{SECRET}{SECRET}@index.example/simple",
        f"https://bucket.example/x?X-Amz-Signature={SECRET}&x=1",
        f'{{"token": "{SECRET}", "max_tokens": 1024}}',
        f'{{\\"token\\": \\"{SECRET}\\"}}',
        f"password: {SECRET}",
        f"client-key-data: {SECRET}",
        f"    - name: HF_TOKEN\n      value: {SECRET}\n",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
        f"{'x' * 5000} token={SECRET}",
        f"Authorization: token {SECRET}",
        f"Proxy-Authorization: Digest username=ada, response={SECRET}",
        f"{{'Authorization': 'token {SECRET}'}}",
        f"Cookie: a=1; session={SECRET}",
        f"https://store.example/data?sv=2024&sig={SECRET}",
        f"DefaultEndpointsProtocol=https;AccountKey={SECRET};EndpointSuffix=x",
        f"machine api.example login ada password {SECRET}",
        f"postgres://ada:p@{SECRET}@host/database",
        f"DB_PASS={SECRET}",
        f"train.py --auth {SECRET}",
        f"password: |\n  {SECRET}\nlr: 1",
        f'{{"password":\n  "{SECRET}"}}',
    ],
)
def test_a_secret_is_taken_out_by_its_name_or_its_place(text: str) -> None:
    redacted = Redactor().text(text)
    assert SECRET not in redacted
    assert MARK in redacted
    assert Redactor().text(redacted) == redacted, "twice is as once"


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "a" * 30,
        "ghp_" + "A1" * 18,
        "github_pat_" + "a1" * 20,
        "sk-proj-" + "a1B2" * 8,
        "AKIA" + "ABCDEFGH12345678",
        "xoxb-1234567890-abcdefghij",
        "glpat-" + "x" * 20,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "sk_live_" + "a1" * 12,
        "ya29." + "a0" * 20,
        "dapi" + "0123456789abcdef" * 2,
    ],
)
def test_a_token_is_taken_out_by_its_shape_also_where_it_was_cut_short(token: str) -> None:
    assert (
        Redactor().text(f"ValueError: cannot log in with {token} now") == f"ValueError: cannot log in with {MARK} now"
    )
    if token.startswith(("hf_", "ghp_", "sk-", "AKIA", "glpat-")):
        assert token[:10] not in Redactor().text(f"ValueError: cannot log in with {token[:12]}…")


@pytest.mark.parametrize(
    "text",
    [
        "step=3 loss: 0.25 tokenizer=bert-base tokens: 1234567 max_tokens=2048",
        'KeyError: "lr"; keys: weight, bias',
        "token=None password=${PASSWORD} secret: $SECRET",
        "https://index.example:8080/simple?page=2",
        "see https://example.com/a@b and user@example.com",
        "resumed at step 300: 12 steps lost",
        "token_count=123456789 pad_token='<pad_word>' eos_token_id: 1234567 token_loss=2.3145678",
        "forward_pass: 12.345678 backward_pass=23.4567891 PWD=/home/ada/project",
        "author: ada_lovelace, design: modern_one, authors=ada_lovelace",
        "password:\nepochs: 30\n",
        "http://host.example:80/a?x=1&y=ada@example",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor()
    assert redactor.text(text) == text
    assert redactor.count == 0


def test_a_value_that_is_known_is_taken_out_wherever_it_occurs() -> None:
    settings: dict[str, Any] = {
        "env": {"HF_TOKEN": SECRET, "LR": "0.1"},
        "args": ["--password", "hunter2hunter2", "--epochs", "3", "--api-key=zzzzzzzz9"],
        "containers": [
            {"env": [{"name": "DB_PASSWORD", "value": "pod-secret-value"}, {"name": "A", "value": "plain"}]}
        ],
    }
    known = secrets_of(settings)
    assert known == {SECRET, "hunter2hunter2", "zzzzzzzz9", "pod-secret-value"}
    redactor = Redactor(known)
    assert (
        redactor.text(f"ValueError: {SECRET} and pod-secret-value, in 0.1 s")
        == f"ValueError: {MARK} and {MARK}, in 0.1 s"
    )
    assert redactor.tree(settings) == {
        "env": {"HF_TOKEN": MARK, "LR": "0.1"},
        "args": ["--password", MARK, "--epochs", "3", f"--api-key={MARK}"],
        "containers": [{"env": [{"name": "DB_PASSWORD", "value": MARK}, {"name": "A", "value": "plain"}]}],
    }


def test_a_short_value_is_not_looked_for_elsewhere() -> None:
    assert Redactor(["abc"]).text("abcdef") == "abcdef"


def test_references_to_secrets_are_none() -> None:
    volume = {"name": "v", "secret": {"secretName": "tls"}}
    assert Redactor().tree({"volumes": [volume], "rendezvousSecret": "require"}) == {
        "volumes": [volume],
        "rendezvousSecret": "require",
    }


def test_a_line_of_megabytes_ends_in_time() -> None:
    for text in ("a" * 2_000_000 + " token", "token" * 200_000, "_" * 1_000_000 + "key=", "a-" * 500_000 + "://"):
        Redactor().text(text)
