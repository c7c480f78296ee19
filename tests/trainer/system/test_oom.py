"""The kernel's OOM counters, for both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.system.oom import OOMKills, format_bytes


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2 = {
    "proc/self/cgroup": "0::/\n",
    "proc/vmstat": "nr_free_pages 5\noom_kill 7\n",
    "sys/fs/cgroup/memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
    "sys/fs/cgroup/memory.max": "536870912\n",
}
V1 = {
    "proc/self/cgroup": "9:name=systemd:/\n4:memory:/kubepods/pod1\n0::/\n",
    "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
}


def test_a_container_with_cgroup_v2(tmp_path: Path) -> None:
    assert OOMKills.now(tree(tmp_path, V2)) == OOMKills(group=2, host=7, limit=512 << 20)


def test_a_container_with_cgroup_v1_the_hosts_path_and_no_limit(tmp_path: Path) -> None:
    assert OOMKills.now(tree(tmp_path, V1)) == OOMKills(group=2, host=0, limit=0)


def test_a_process_on_a_host_with_cgroup_v2(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/user.slice/run-1.scope\n",
        "sys/fs/cgroup/user.slice/run-1.scope/memory.events": "oom_kill 1\n",
        "sys/fs/cgroup/user.slice/run-1.scope/memory.max": "max\n",
    }
    assert OOMKills.now(tree(tmp_path, files)) == OOMKills(group=1)


def test_without_counters_nothing_was_killed(tmp_path: Path) -> None:
    assert OOMKills.now(tmp_path) == OOMKills()
    assert OOMKills.now().since(OOMKills.now()) == ""


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (OOMKills(group=1, host=1, limit=1 << 30), "out of memory: the limit is 1.0 GiB"),
        (OOMKills(group=1), "out of memory"),
        (OOMKills(host=1, limit=1 << 30), "most likely out of memory"),
        (OOMKills(limit=1 << 30), ""),
    ],
)
def test_more_kills_than_before_explain_a_kill(after: OOMKills, expected: str) -> None:
    explanation = after.since(OOMKills(limit=1 << 30))
    assert explanation.startswith(expected)
    assert bool(explanation) == bool(expected)


def test_bytes_are_formatted() -> None:
    assert [format_bytes(64 << 20), format_bytes(1536 << 20)] == ["64 MiB", "1.5 GiB"]
