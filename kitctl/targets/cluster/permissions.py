"""What a user may do in a namespace, from the API server's list of rules. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kitctl.targets.cluster.resources import RESOURCES

NEEDED: Final = ("create", "patch")  # patch: to release a job, to use a claim, and for diff


@dataclass(frozen=True)
class Permissions:
    """The status of a SelfSubjectRulesReview."""

    status: dict[str, Any]

    def may_apply(self, *kinds: str) -> bool:
        """Whether objects of all these kinds may be created; an incomplete list forbids nothing."""
        return bool(self.status.get("incomplete")) or all(self._allows(verb, kind) for kind in kinds for verb in NEEDED)

    def _allows(self, verb: str, kind: str) -> bool:
        resource = RESOURCES[kind]
        asked = {"verbs": verb, "apiGroups": resource.group, "resources": resource.plural}
        return any(
            not rule.get("resourceNames") and all({part, "*"} & {*rule.get(key, ())} for key, part in asked.items())
            for rule in self.status.get("resourceRules", ())
        )
