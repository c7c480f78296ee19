"""What a user may do in a namespace, from the API server's list of rules. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kitctl.targets.cluster.connection.resources import RESOURCES

NEEDED: Final = ("create", "patch")  # patch: to release a job, to use a claim, and for diff


@dataclass(frozen=True)
class Permissions:
    """The status of a SelfSubjectRulesReview."""

    status: dict[str, Any]

    def may_apply(self, *kinds: str) -> bool:
        """Whether objects of all these kinds may be created; an incomplete list forbids nothing."""
        asked = [RESOURCES[kind] for kind in kinds]
        return all(self.has(verb, one.group, one.plural) for one in asked for verb in NEEDED)

    @property
    def may_run_commands(self) -> bool:
        """Whether a helper pod may be created, and commands be run in it; an incomplete list forbids nothing."""
        return self.has("create", "", "pods") and self.has("create", "", "pods/exec")

    def has(self, verb: str, group: str, resource: str) -> bool:
        """Whether a verb is allowed on a resource (``pods``, ``pods/exec``); an incomplete list forbids nothing."""
        return bool(self.status.get("incomplete")) or self._permits(verb, group, resource)

    def _permits(self, verb: str, group: str, resource: str) -> bool:
        wanted = {"verbs": verb, "apiGroups": group, "resources": resource}
        return any(
            not rule.get("resourceNames") and all({part, "*"} & {*rule.get(key, ())} for key, part in wanted.items())
            for rule in self.status.get("resourceRules", ())
        )
