"""Settings that tests of several modules give a job."""

from __future__ import annotations

from typing import Final

from kitjob.sections import Snapshots

# No key that agents or ranks read is at its default.
SENT_SNAPSHOTS: Final = Snapshots(
    every_steps=7,
    every="10m",
    keep=2,
    keep_every=100,
    keep_best="max:accuracy",
    memory_every_steps=3,
    copy=False,
    model_file=False,
)
