"""Commands that messages suggest work as they stand: they have the options of the command line that printed them."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest

from kitctl.base.errors import KitError
from kitctl.cli import hints
from kitctl.cli.command import Command, option


def shown(text: str, words: Sequence[str], *, namespace: str = "") -> str:
    """What a command with these options prints of a text."""

    @click.command(cls=Command)
    @option("-n", "--namespace", envvar="KITCTL_NAMESPACE")
    @option("--context")
    @option("--kubeconfig", envvar="KITCTL_KUBECONFIG")
    @option("--target")
    def command(**_: object) -> str:
        hints.about("run", namespace)
        return hints.addressed(text)

    found: str = command.main(words, standalone_mode=False)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see kitctl logs run --rank 1", "see kitctl logs run -n team --rank 1"),
        ("kitctl logs -f run  its logs", "kitctl logs -f run -n team  its logs"),
        ("kitctl suspend run, then kitctl resume run.", "kitctl suspend run -n team, then kitctl resume run -n team."),
        ("kitctl logs run -n team", "kitctl logs run -n team"),
        ("kitctl logs run-2", "kitctl logs run-2"),
        ("kitctl logs run.b and other run", "kitctl logs run.b and other run"),
        ("kitctl events shows the run", "kitctl events shows the run"),
    ],
)
def test_only_commands_for_this_job_get_the_options(text: str, expected: str) -> None:
    assert shown(text, ["-n", "team"]) == expected
    assert shown(text, [], namespace="team") == expected
    assert shown(text, []) == text


def test_all_options_that_find_a_job_and_none_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITCTL_KUBECONFIG", "there")
    words = ["--context", "a b", "--target", "cluster", "-n", "x"]
    assert shown("kitctl logs run", words) == "kitctl logs run -n x --target cluster --context 'a b'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("have it raised: kubectl describe quota q", "have it raised: kubectl -n team describe quota q"),
        ("kubectl describe Secret creds lists its keys", "kubectl -n team describe Secret creds lists its keys"),
        ("what kubectl describe limitrange allows: x", "what kubectl -n team describe limitrange allows: x"),
        (
            "kubectl logs run-0 -c init, kubectl get pod a",
            "kubectl -n team logs run-0 -c init, kubectl -n team get pod a",
        ),
        ("kubectl auth can-i --list", "kubectl -n team auth can-i --list"),
        ("kubectl get pods -n kueue-system", "kubectl get pods -n kueue-system"),
        ("kubectl get pods -A; kubectl get nodes", "kubectl get pods -A; kubectl get nodes"),
        ("kubectl describe node a: kubectl cordon it", "kubectl describe node a: kubectl cordon it"),
        ("kubectl get priorityclass; kubectl describe pv", "kubectl get priorityclass; kubectl describe pv"),
    ],
)
def test_kubectl_commands_get_the_namespace_of_what_is_in_one(
    text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(text, ["-n", "team"]) == expected
    assert shown(text, [], namespace="team") == expected
    assert shown(text, []) == text
    monkeypatch.setenv("KITCTL_NAMESPACE", "team")  # which kubectl does not read
    assert shown(text, []) == expected


def test_kubectl_commands_get_the_cluster_and_no_target() -> None:
    words = ["--context", "c", "--target", "cluster", "-n", "x"]
    assert shown("kubectl get pvc", words) == "kubectl -n x --context c get pvc"


def test_the_fix_of_an_error_has_them() -> None:
    @click.command(cls=Command)
    @option("-n", "--namespace")
    def command(namespace: str) -> None:
        hints.about("run")
        raise KitError(f"it failed in {namespace}", fix="see kitctl logs run")

    with pytest.raises(KitError) as raised:
        command.main(["-n", "team"], standalone_mode=False)
    assert raised.value.fix == "see kitctl logs run -n team"


def test_without_a_command_line_nothing_is_added() -> None:
    hints.about("run")
    assert hints.addressed("kitctl logs run") == "kitctl logs run"
