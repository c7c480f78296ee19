"""The cluster target: jobs as Kubernetes objects. The only package that imports ``kubernetes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kitctl.targets import Submission, TargetOptions
    from kitctl.targets.cluster.cluster_target import ClusterTarget


def connect(options: TargetOptions) -> ClusterTarget:
    """The cluster of the kubeconfig's context; nothing is sent to it yet.

    Raises:
        UsageError: there is no such context, or the kubeconfig cannot be read.
    """
    from kitctl.targets.cluster.cluster_target import ClusterTarget  # noqa: PLC0415
    from kitctl.targets.cluster.connection import kubeconfig  # noqa: PLC0415 - a quarter of a second
    from kitctl.targets.cluster.connection.api import Api  # noqa: PLC0415

    api = Api(kubeconfig.connection(options.context, options.kubeconfig), options.warn)
    return ClusterTarget(api, kubeconfig.current_context(options.context, options.kubeconfig), options.warn)


def remarks(submission: Submission) -> Iterator[str]:
    """Warns of likely credentials and mistakes, of modules that are not sent, and of pods that many refuse."""
    from kitctl.code import credentials  # noqa: PLC0415 - as above
    from kitctl.code.workdir.imports import import_warnings  # noqa: PLC0415
    from kitctl.render import overlay  # noqa: PLC0415 - as above
    from kitctl.spec import remarks as job_remarks  # noqa: PLC0415 - as above

    if submission.spec.python:
        yield "python: a cluster's pods use the image's interpreter"
    yield from job_remarks.remarks(submission.spec)
    yield from credentials.warnings(submission.spec, submission.sources)
    yield from import_warnings(submission.spec, submission.sources, submission.folder)
    yield from filter(None, [overlay.warning(submission.spec)])
    if submission.checks:
        from kitctl.targets.cluster.submit import likely_mistakes  # noqa: PLC0415 - as above

        yield from likely_mistakes.warnings(submission)
