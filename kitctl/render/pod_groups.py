"""A table of gang scheduling plugins, which start a job's pods only together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec


class PodGroupKind(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup of one plugin, and how a pod names its own: by a label, or by an annotation."""

    api_version: str
    label: str = ""
    annotation: str = ""
    scheduler: str = ""
    """schedulerName of the pods; empty: the plugin is part of another scheduler, often of the default one."""


POD_GROUPS: Final[Mapping[str, PodGroupKind]] = {
    "coscheduling": PodGroupKind(api_version="scheduling.x-k8s.io/v1alpha1", label="scheduling.x-k8s.io/pod-group"),
    "volcano": PodGroupKind(
        api_version="scheduling.volcano.sh/v1beta1", annotation="scheduling.k8s.io/group-name", scheduler="volcano"
    ),
}
