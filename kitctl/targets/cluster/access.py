"""Which API server, and as whom: ``kubernetes`` reads kubeconfigs, certificates, exec plug-ins and tokens."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.api_client import ApiClient

from kitctl.errors import UsageError

UNUSABLE = (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError)


class Place(NamedTuple):
    """A cluster by the name that a person gave it, the namespace that is meant there, and the user."""

    name: str
    namespace: str
    user: str = ""


def client(context: str | None, kubeconfig: Path | None) -> ApiClient:
    """A client of the kubeconfig's context; in a pod without a kubeconfig, of the pod's own account.

    Raises:
        UsageError: there is no such context, or the kubeconfig cannot be read.
    """
    path = str(kubeconfig) if kubeconfig else None
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST") and not (context or path or _has_kubeconfig()):
            own = Configuration()
            config.load_incluster_config(own)
            return ApiClient(own)
        chosen: ApiClient = config.new_client_from_config(path, context)
    except UNUSABLE as error:
        raise UsageError(f"the kubeconfig cannot be used: {error}", fix=_contexts(path)) from error
    return chosen


def place(context: str | None, kubeconfig: Path | None) -> Place:
    """The kubeconfig's context, as a person knows it; in a pod without one, that cluster."""
    with suppress(*UNUSABLE):
        contexts, active = config.list_kube_config_contexts(str(kubeconfig) if kubeconfig else None)
        chosen: dict[str, Any] = next((one for one in contexts if one["name"] == context), active)
        known = chosen["context"]
        return Place(chosen["name"], known.get("namespace") or "default", known.get("user") or "")
    return Place(name="this cluster", namespace="default")


def _has_kubeconfig() -> bool:
    return bool(os.environ.get("KUBECONFIG")) or (Path.home() / ".kube" / "config").exists()


def _contexts(path: str | None) -> str:
    with suppress(*UNUSABLE):
        contexts, _ = config.list_kube_config_contexts(path)
        return f"choose one of its contexts with --context: {', '.join(context['name'] for context in contexts)}"
    return "mend it, name another with --kubeconfig, or use --target local"
