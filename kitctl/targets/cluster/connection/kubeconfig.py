"""Reads the kubeconfig: which API server, namespace and user. ``kubernetes`` handles certificates, plug-ins, tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

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


Header = tuple[str, str]
_ACTS_AS = re.compile(r"""\bas(?:-\w+)*["']?\s*:""")  # the keys of a user who acts as another one


class Connection:
    """A pool of connections to an API server, and what shows it who the user is."""

    def __init__(self, configuration: Any, impersonated: Sequence[Header] = ()) -> None:
        self.configuration = configuration
        self.server: str = configuration.host
        self.pool: urllib3.PoolManager = _MODULES.rest.RESTClientObject(configuration).pool_manager
        self._impersonated = impersonated

    def identity(self) -> list[Header]:
        """The headers with the user's token, which may be renewed for it, and with whom the user acts as.

        A user with a certificate has no token.
        """
        found = self.configuration.auth_settings().get("BearerToken")
        return [*([("authorization", found["value"])] if found and found["value"] else []), *self._impersonated]


def connection(context: str | None, kubeconfig: Path | None) -> Connection:
    """A connection for the kubeconfig's context; in a pod without a kubeconfig, for the pod's service account.

    Raises:
        UsageError: there is no such context, or the kubeconfig is missing or cannot be read.
    """
    paths, own = _paths(kubeconfig), _MODULES.configuration.Configuration()
    if absent := _absent(kubeconfig):
        raise UsageError(absent, fix="correct that path, unset it, or use --target local")
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST") and not (context or kubeconfig or _has_kubeconfig()):
            config.load_incluster_config(own)
        else:
            config.load_kube_config(paths, context, client_configuration=own)
            return Connection(own, _impersonated(paths, context))
        return Connection(own)
    except UNUSABLE as error:
        raise _unusable(paths, context, error) from error


def current_context(context: str | None, kubeconfig: Path | None) -> Context:
    """The kubeconfig's context; in a pod without a kubeconfig, the pod's cluster."""
    with suppress(*UNUSABLE):
        contexts, current = _contexts(_paths(kubeconfig))
        name = context or current
        if name in contexts:
            return Context(name, contexts[name].get("namespace") or "default", contexts[name].get("user") or "")
    return Context(name="this cluster", namespace="default")


def _paths(kubeconfig: Path | None) -> str:
    """The files that are read, as in ``$KUBECONFIG``; those of a list that do not exist are left out."""
    return str(kubeconfig or os.environ.get("KUBECONFIG") or home() / ".kube" / "config")


def _absent(kubeconfig: Path | None) -> str:
    """What is wrong if the user has named files of which none exists: that is a mistake, and no choice."""
    named = str(kubeconfig or os.environ.get("KUBECONFIG") or "")
    if not named or any(Path(path).expanduser().exists() for path in named.split(os.pathsep) if path):
        return ""
    return f"{'the kubeconfig is' if kubeconfig else 'KUBECONFIG names'} a file that does not exist: {named}"


def _has_kubeconfig() -> bool:
    return bool(os.environ.get("KUBECONFIG")) or (home() / ".kube" / "config").exists()


def _contexts(paths: str) -> tuple[dict[str, dict[str, Any]], str]:
    """What the contexts are, by name, and the current one's name; read here, as the client wants a current one."""
    merged = config.kube_config.KubeConfigMerger(paths).config
    return _contexts_in(merged.value if merged else {})


def _contexts_in(value: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
    found = {one.value["name"]: one.value.get("context") or {} for one in value.get("contexts", ())}
    return found, value.get("current-context") or ""


def _impersonated(paths: str, context: str | None) -> list[Header]:
    """Whom the context's user acts as, by the user's ``as`` and its like, which the client does not know.

    Source: kubernetes.io/docs/reference/access-authn-authz/user-impersonation.
    """
    files = [found for path in paths.split(os.pathsep) if path and (found := Path(path).expanduser()).exists()]
    if not any(_ACTS_AS.search(file.read_text(errors="replace")) for file in files):
        return []  # which is seen sooner than YAML is parsed
    value = config.kube_config.KubeConfigMerger(paths).config.value
    contexts, current = _contexts_in(value)
    name = contexts[context or current].get("user")
    user = next((one.value.get("user") or {} for one in value.get("users", ()) if one.value["name"] == name), {})
    extra = (user.get("as-user-extra") or {}).items()
    return [
        *(("Impersonate-User", str(one)) for one in [user.get("as")] if one),
        *(("Impersonate-Uid", str(one)) for one in [user.get("as-uid")] if one),
        *(("Impersonate-Group", str(one)) for one in user.get("as-groups") or ()),
        *((f"Impersonate-Extra-{quote(key, safe='')}", str(one)) for key, values in extra for one in values),
    ]


def _unusable(paths: str, context: str | None, error: Exception) -> UsageError:
    """The error of a kubeconfig that the client refuses, with the contexts to choose from."""
    with suppress(*UNUSABLE):
        known, current = _contexts(paths)
        if known and not (context or current):
            fix = f"choose one with --context, or kubectl config use-context NAME: {', '.join(known)}"
            return UsageError("the kubeconfig has no current context", fix=fix)
        if known:
            fix = f"choose one of its contexts with --context: {', '.join(known)}"
            return UsageError(f"the kubeconfig cannot be used: {error}", fix=fix)
    fix = "fix it, pass another --kubeconfig, or use --target local"
    return UsageError(f"the kubeconfig cannot be used: {error}", fix=fix)
