"""The contract of kitctl and kittrain: what one of them writes and the other reads, each fact once.

The job file's keys with their types and defaults (``job_keys``, ``sections``, ``pod_section``), the document that tells
agents and ranks about their job (``document``, ``run``), what agents report (``report``), what the snapshot tool prints
(``history``), variables and exit codes (``names``). Standard library only: kittrain has nothing else, wherever it runs.

Why: decision 35.
"""

from __future__ import annotations

__version__ = "0.1.0"
