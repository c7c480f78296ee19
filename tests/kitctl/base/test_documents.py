"""What the pods of an existing job were told is read as it was written."""

from __future__ import annotations

from kitctl.base import documents
from kitctl.code.code_tree import Sources
from kitctl.kinds import of_object
from kitctl.kinds.job_kind import plain_env
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec


def test_dollars_arrive_once() -> None:
    """In a pod's variables each is doubled: Kubernetes would expand ``$(NAME)``."""
    spec = JobSpec(name="job", outputs="a$(HOME)$b", workdir=".")
    job = render.manifests(spec, Sources())[-1]
    environ = plain_env(of_object(job).pod_template(job))
    assert "a$$(HOME)$$b" in str(environ)
    assert documents.read_settings(environ).outputs == spec.outputs
