"""Which tests need the controllers that `make test` does not build: of JobSets, of TrainJobs, and of queues.

Their definitions are on every cluster. A test of one of their kinds is known by its parameters; others say so with
``pytest.mark.controllers``.
"""

from __future__ import annotations

from typing import Final

import pytest

WHICH: Final = "the controllers of JobSet, Kubeflow Trainer or Kueue"
KINDS: Final = frozenset({"JobSet", "TrainJob"})


def needed_by(item: pytest.Item) -> bool:
    """Whether a test creates jobs of such a kind, by its parameters: a kind, or several."""
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return any(
        one in KINDS
        for value in values
        for one in (value if isinstance(value, tuple) else (value,))
        if isinstance(one, str)
    )
