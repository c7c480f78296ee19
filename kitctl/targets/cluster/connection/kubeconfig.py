"""Reads the kubeconfig: which API server, namespace and user. ``kubernetes`` handles certificates, plug-ins, tokens."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.api_client import ApiClient

from kitctl.base.errors import UsageError

UNUSABLE = (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError)


class Context(NamedTuple):
    """A context of the kubeconfig: its name, namespace and user."""

    name: str
    namespace: str
    user: str = ""


def api_client(context: str | None, kubeconfig: Path | None) -> ApiClient:
    """A client for the kubeconfig's context; in a pod without a kubeconfig, for the pod's service account.

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


def current_context(context: str | None, kubeconfig: Path | None) -> Context:
    """The kubeconfig's context; in a pod without a kubeconfig, the pod's cluster."""
    with suppress(*UNUSABLE):
        contexts, active = config.list_kube_config_contexts(str(kubeconfig) if kubeconfig else None)
        chosen: dict[str, Any] = next((one for one in contexts if one["name"] == context), active)
        known = chosen["context"]
        return Context(chosen["name"], known.get("namespace") or "default", known.get("user") or "")
    return Context(name="this cluster", namespace="default")


def _has_kubeconfig() -> bool:
    return bool(os.environ.get("KUBECONFIG")) or (Path.home() / ".kube" / "config").exists()


def _contexts(path: str | None) -> str:
    with suppress(*UNUSABLE):
        contexts, _ = config.list_kube_config_contexts(path)
        return f"choose one of its contexts with --context: {', '.join(context['name'] for context in contexts)}"
    return "fix it, pass another --kubeconfig, or use --target local"
