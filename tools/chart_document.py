"""What the chart has to know of the document for agents and ranks (``_document.tpl``), from ``kitjob``."""

from __future__ import annotations

import json
from typing import Any, Final

from kitjob.document import LIMIT, VERSION
from kitjob.job_keys import JobKeys
from kitjob.names import DEFAULT_IMAGE, EXIT_CODES
from kitjob.record import Record, camel, sent_fields
from kitjob.run import RunFacts

HEADER: Final = """\
{{/*
The defaults of all that agents and ranks are told, as JSON, written by `make docs` from trainer/kitjob: what differs
from them is in the document (`training-job.document`).
*/}}
{{- define "training-job.defaults" -}}
"""
FOOTER: Final = """\
{{- end }}
"""
OPTIONAL: Final = {"code", "packages", "exit_codes"}  # of a run: set as a whole, or not at all


def document_tpl() -> str:
    """The whole template."""
    run = {camel(name): value for name, value in RunFacts.__fields__.items() if name not in OPTIONAL}
    known = {
        "version": VERSION,
        "limit": LIMIT,
        "image": DEFAULT_IMAGE,
        "exitCodes": EXIT_CODES,
        "run": run,
        "job": _defaults(JobKeys()),
    }
    return f"{HEADER}{json.dumps(known, indent=2)}\n{FOOTER}"


def _defaults(record: Record) -> dict[str, Any]:
    sent = {name: getattr(record, name) for name in record.__fields__ if name in sent_fields(type(record))}
    return {camel(name): _defaults(value) if isinstance(value, Record) else value for name, value in sent.items()}
