"""Reads the kubeconfig: which API server, namespace and user. ``kubernetes`` handles certificates, plug-ins, tokens."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
import yaml

from kitctl.base.errors import UsageError
from kitctl.base.user_folders import home
from kitctl.targets.cluster.connection import client_modules

_MODULES = client_modules.load()
config = _MODULES.config
UNUSABLE = (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError)


class Context(NamedTuple):
    """A context of the kubeconfig: its name, namespace and user."""

    name: str
    namespace: str
    user: str = ""


class Connection:
    """A pool of connections to an API server, and what shows it who the user is."""

    def __init__(self, configuration: Any) -> None:
        self.configuration = configuration
        self.server: str = configuration.host
        self.pool: urllib3.PoolManager = _MODULES.rest.RESTClientObject(configuration).pool_manager

    def authorization(self) -> dict[str, str]:
        """The header with the user's token, which may be renewed for it; empty for a user with a certificate."""
        found = self.configuration.auth_settings().get("BearerToken")
        return {"authorization": found["value"]} if found and found["value"] else {}


def connection(context: str | None, kubeconfig: Path | None) -> Connection:
    """A connection for the kubeconfig's context; in a pod without a kubeconfig, for the pod's service account.

    Raises:
        UsageError: there is no such context, or the kubeconfig cannot be read.
    """
    path = str(kubeconfig) if kubeconfig else None
    own = _MODULES.configuration.Configuration()
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST") and not (context or path or _has_kubeconfig()):
            config.load_incluster_config(own)
        else:
            config.load_kube_config(path, context, client_configuration=own)
        return Connection(own)
    except UNUSABLE as error:
        raise UsageError(f"the kubeconfig cannot be used: {error}", fix=_contexts(path)) from error


def current_context(context: str | None, kubeconfig: Path | None) -> Context:
    """The kubeconfig's context; in a pod without a kubeconfig, the pod's cluster."""
    with suppress(*UNUSABLE):
        contexts, active = config.list_kube_config_contexts(str(kubeconfig) if kubeconfig else None)
        chosen: dict[str, Any] = next((one for one in contexts if one["name"] == context), active)
        known = chosen["context"]
        return Context(chosen["name"], known.get("namespace") or "default", known.get("user") or "")
    return Context(name="this cluster", namespace="default")


def _has_kubeconfig() -> bool:
    return bool(os.environ.get("KUBECONFIG")) or (home() / ".kube" / "config").exists()


def _contexts(path: str | None) -> str:
    with suppress(*UNUSABLE):
        contexts, _ = config.list_kube_config_contexts(path)
        return f"choose one of its contexts with --context: {', '.join(context['name'] for context in contexts)}"
    return "fix it, pass another --kubeconfig, or use --target local"
