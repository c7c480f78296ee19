"""Jobs on a cluster that are well."""

from __future__ import annotations

from typing import Final

from tests.corpus.cluster_pending import pending
from tests.corpus.situation import DDP

_SHORT: Final = DDP + "for i in range(300):\n    step()\n"
_STAGING: Final = """
pod:
  initContainers:
  - {name: stage, image: IMAGE, command: [sleep, '25']}
"""

CLUSTER_HEALTHY: Final = (
    pending("healthy on a cluster", script=_SHORT, healthy=True),
    pending("healthy and copies its data first", script=_SHORT, spec=_STAGING, healthy=True, first=(True, True)),
    pending("healthy on a claim of its own", script=_SHORT, options=("--storage", "1Gi"), healthy=True),
)
