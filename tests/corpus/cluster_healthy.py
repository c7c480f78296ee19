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
_NODE_0_LATER: Final = """
pod:
  initContainers:
  - name: stage
    image: IMAGE
    command: [sh, -c, 'test "$INDEX" != 0 || sleep 70']
    env:
    - name: INDEX
      valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
"""

CLUSTER_HEALTHY: Final = (
    pending("healthy on a cluster", script=_SHORT, healthy=True),
    pending("healthy and copies its data first", script=_SHORT, spec=_STAGING, healthy=True, first=(True, True)),
    pending("healthy and waits for node 0", script=_SHORT, spec=_NODE_0_LATER, healthy=True, first=(True, True)),
    pending("healthy on a claim of its own", script=_SHORT, options=("--storage", "1Gi"), healthy=True),
)
