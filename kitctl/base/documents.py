"""What the pods of an existing job were told, from its container's variables as the API server has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kitjob import document, variables
from kitjob.job_keys import JobKeys
from kitjob.record import Record
from kitjob.run import RunFacts

T = TypeVar("T", bound=Record)


def read_settings(environ: Mapping[str, str]) -> JobKeys:
    """The settings that its agents read; defaults where its document cannot be read."""
    return _read(environ, 0, JobKeys())


def read_run(environ: Mapping[str, str]) -> RunFacts:
    """What they are told about the run; defaults where its document cannot be read."""
    return _read(environ, 1, RunFacts())


def _read(environ: Mapping[str, str], part: int, default: T) -> T:
    try:
        parts = document.read(environ.get(variables.KIT_SPEC, "").replace("$$", "$"))
        return document.build(type(default), parts[part])
    except document.DocumentError:  # not written by kitctl, or not by this version
        return default


def min_nodes(environ: Mapping[str, str], most: int) -> int:
    """The least number of nodes that its agents accept; ``most`` where neither document nor variable says so."""
    if variables.KIT_SPEC in environ:
        return read_settings(environ).min_nodes
    try:
        return document.build(JobKeys, {"nodes": environ.get("KIT_NODES", most)}).min_nodes
    except document.DocumentError:  # a TrainJob written by hand
        return most
