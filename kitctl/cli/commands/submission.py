"""The job that a command line describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitctl.cli.common import info

if TYPE_CHECKING:
    from pathlib import Path

    from kitctl.code.code_tree import Sources
    from kitctl.input.job_request import JobRequest
    from kitctl.spec.job_spec import JobSpec


def rendered(job: JobRequest, templates: Path | None) -> list[dict[str, object]]:
    """The objects of a job that is only printed, with warnings about it.

    Raises:
        SpecError: the file or a flag is wrong.
        UsageError: a template is wrong.
    """
    from kitctl.code import credentials
    from kitctl.input import specfile
    from kitctl.render import overlay

    spec = specfile.build(job)
    sources = _sources(spec)
    for warning in filter(None, [*credentials.warnings(spec, sources), overlay.warning(spec)]):
        info(f"warning: {warning}")
    for sent in sources.folders:
        if sent.archive is None:
            fix = "such pods find it once kitctl submit has sent it"
            info(f"warning: {sent.key} is too large for a ConfigMap: {fix}")
    return _objects(spec, sources, templates)


def objects(spec: JobSpec, templates: Path | None, *, namespace: str = "") -> list[dict[str, object]]:
    """The Kubernetes objects of a job, with the files of the current folder that are sent with it.

    Args:
        spec: the job.
        templates: a folder with templates that replace kitctl's own.
        namespace: of a job whose spec names none.
    """
    spec = spec.in_namespace(namespace)
    return _objects(spec, _sources(spec), templates)


def _objects(spec: JobSpec, sources: Sources, templates: Path | None) -> list[dict[str, object]]:
    from kitctl.render import objects as render
    from kitctl.render.templates import check_folder

    return render.manifests(spec, sources, templates=check_folder(templates) if templates else None)


def _sources(spec: JobSpec) -> Sources:
    from pathlib import Path

    from kitctl.code.sources import sources

    return sources(spec, Path.cwd())
