"""The diff between an object and its desired state."""

from __future__ import annotations

from typing import Any

from kitctl.output.view import changes

OBJECT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "run", "labels": {"a": "1"}},
    "spec": {"ports": [29400]},
}


def test_no_changes_print_nothing() -> None:
    live = OBJECT | {
        "metadata": OBJECT["metadata"] | {"uid": "x", "resourceVersion": "1", "managedFields": [], "generation": 2},
        "status": {"loadBalancer": {}},
    }
    assert list(changes.lines(live, OBJECT)) == []
    assert list(changes.lines(live, live | {"metadata": live["metadata"] | {"resourceVersion": "2"}})) == []


def test_changes_are_a_unified_diff_with_the_objects_name() -> None:
    diff = list(changes.lines(OBJECT, OBJECT | {"spec": {"ports": [1, 29400]}}))
    assert diff[:2] == ["--- Service/run\n", "+++ Service/run\n"]
    assert [line for line in diff[3:] if line[0] in "+-"] == ["+  - 1\n"]
    assert all(line.endswith("\n") for line in diff)


def test_a_new_object_is_all_additions() -> None:
    head, name, _, *body = changes.lines(None, OBJECT)
    assert (head, name) == ("--- /dev/null\n", "+++ Service/run\n")
    assert body
    assert {line[0] for line in body} == {"+"}
