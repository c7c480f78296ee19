"""Which target is meant when nobody says so."""

from __future__ import annotations

from pathlib import Path

from kitctl.targets import Where, choose


def test_what_was_asked_for_is_taken(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.touch()
    assert choose(Where(tell=print, target="local"), {"KUBECONFIG": str(config)}).name == "local"
    assert choose(Where(tell=print, target="cluster"), {"HOME": str(tmp_path)}).name == "cluster"


def test_without_any_kubeconfig_it_is_this_machine_and_it_says_so(tmp_path: Path) -> None:
    choice = choose(Where(tell=print), {"HOME": str(tmp_path)})
    assert choice.name == "local"
    assert "no kubeconfig" in choice.reason


def test_a_kubeconfig_means_its_cluster(tmp_path: Path) -> None:
    config = tmp_path / ".kube" / "config"
    config.parent.mkdir()
    config.write_text("broken: [")
    assert choose(Where(tell=print), {"HOME": str(tmp_path)}).name == "cluster", (
        "a broken one is an error, never a fallback"
    )
    assert choose(Where(tell=print), {"HOME": "/", "KUBECONFIG": f"/nowhere:{config}"}).name == "cluster"


def test_a_pod_with_an_account_is_in_a_cluster() -> None:
    assert choose(Where(tell=print), {"HOME": "/nowhere", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}).name == "cluster"


def test_a_context_means_a_cluster() -> None:
    assert choose(Where(tell=print, context="prod"), {"HOME": "/nowhere"}).name == "cluster"
