"""All situations of the corpus."""

from __future__ import annotations

from typing import Final

from tests.corpus.blind_causes import BLIND_CAUSES
from tests.corpus.blind_ends import BLIND_ENDS
from tests.corpus.blind_forums import BLIND_FORUMS
from tests.corpus.blind_healthy import BLIND_HEALTHY
from tests.corpus.blind_lot import BLIND_LOT
from tests.corpus.blind_mixed import BLIND_MIXED
from tests.corpus.blind_scripts import BLIND_SCRIPTS
from tests.corpus.blind_silent import BLIND_SILENT
from tests.corpus.blind_standing import BLIND_STANDING
from tests.corpus.blind_state import BLIND_STATE
from tests.corpus.blind_threads import BLIND_THREADS
from tests.corpus.blind_training import BLIND_TRAINING
from tests.corpus.cluster_healthy import CLUSTER_HEALTHY
from tests.corpus.cluster_lot import CLUSTER_LOT
from tests.corpus.cluster_pending import CLUSTER_PENDING
from tests.corpus.cluster_running import CLUSTER_RUNNING
from tests.corpus.failing import FAILURES
from tests.corpus.healthy import HEALTHY
from tests.corpus.nasty import NASTY
from tests.corpus.odd import ODD
from tests.corpus.situation import Situation
from tests.corpus.standing import STANDING

SITUATIONS: Final[tuple[Situation, ...]] = (
    *FAILURES,
    *STANDING,
    *HEALTHY,
    *NASTY,
    *ODD,
    *BLIND_SCRIPTS,
    *BLIND_STANDING,
    *BLIND_HEALTHY,
    *BLIND_THREADS,
    *BLIND_LOT,
    *BLIND_FORUMS,
    *BLIND_CAUSES,
    *BLIND_ENDS,
    *BLIND_TRAINING,
    *BLIND_SILENT,
    *BLIND_STATE,
    *BLIND_MIXED,
    *CLUSTER_PENDING,
    *CLUSTER_RUNNING,
    *CLUSTER_LOT,
    *CLUSTER_HEALTHY,
)
