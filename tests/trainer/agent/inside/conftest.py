"""Fixtures."""

from tests.trainer.ranks import start_rank as start_rank  # noqa: PLC0414 - pytest finds it here
