"""The cluster target: the only place that imports ``kubernetes``. Not in this version; ``render`` is."""

from __future__ import annotations

from typing import NoReturn

from kitctl.errors import UnsupportedError


def connect() -> NoReturn:
    """Say what works today.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        "a kubeconfig was found, but this version does not yet speak to a cluster itself",
        fix="apply what it renders (kitctl render ... | kubectl apply --server-side -f -), or use --target local",
    )
