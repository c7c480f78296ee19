"""Of the package ``kubernetes`` the modules that read kubeconfigs and make connections, without all others.

Its packages import everything that they have: models with pydantic, a dynamic client, web sockets, OpenID's libraries.
That takes longer than a whole ``kubectl get``, and reading a job needs none of it.

Why: decision 9.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final, NamedTuple

PACKAGE: Final = "kubernetes"
# Whose own modules are wanted, and not what they import.
BARE: Final = (PACKAGE, f"{PACKAGE}.client", f"{PACKAGE}.utils")
# What ``kube_config`` uses to renew an OpenID token, and only then.
ON_DEMAND: Final = ("oauthlib", "oauthlib.oauth2", "requests_oauthlib")


class Modules(NamedTuple):
    """The modules that are used."""

    config: Any
    """Reads kubeconfigs."""
    configuration: Any
    """What a connection takes."""
    rest: Any
    """Makes a pool of connections of it."""


def load() -> Modules:
    """Import them; a later ``import kubernetes`` finds the whole package all the same."""
    if PACKAGE in sys.modules:  # somebody has imported all of it
        return _import()
    with _only_own_modules():
        return _import()


def _import() -> Modules:
    configuration = import_module(f"{PACKAGE}.client.configuration")
    client = sys.modules[f"{PACKAGE}.client"]
    if not hasattr(client, "__file__"):
        client.__dict__.update(
            Configuration=configuration.Configuration, ApiClient=partial(_call, f"{PACKAGE}.client", "ApiClient")
        )
    return Modules(import_module(f"{PACKAGE}.config"), configuration, import_module(f"{PACKAGE}.client.rest"))


@contextmanager
def _only_own_modules() -> Iterator[None]:
    """Within it packages are imported bare, and nothing of that is left in ``sys.modules``."""
    before = {name: module for name in ON_DEMAND if (module := sys.modules.get(name))}
    try:
        for name in BARE:
            sys.modules[name] = _bare(name)
        for name in ON_DEMAND:
            sys.modules.setdefault(name, _OnDemand(name))
        sys.modules["oauthlib"].__dict__.setdefault("oauth2", sys.modules["oauthlib.oauth2"])
        yield
    finally:
        for name in [*sys.modules]:
            if name.partition(".")[0] == PACKAGE or (name in ON_DEMAND and name not in before):
                del sys.modules[name]


def _bare(name: str) -> ModuleType:
    """A package that has imported nothing."""
    parent, _, last = name.rpartition(".")
    found = ModuleType(name)
    if parent:
        (folder,) = sys.modules[parent].__path__
        found.__path__ = [f"{folder}/{last}"]
        setattr(sys.modules[parent], last, found)
    else:
        spec = find_spec(name)
        found.__path__ = [*(spec.submodule_search_locations or ())] if spec else []
    return found


def _call(module: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call what a module has, which is imported now."""
    return getattr(import_module(module), name)(*args, **kwargs)


class _OnDemand(ModuleType):
    """Stands for a module that is imported once a name of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "requests_oauthlib":  # its name is imported by itself, before it is used
            return partial(_call, self.__name__, name)
        return getattr(import_module(self.__name__), name)
