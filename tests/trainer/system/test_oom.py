"""The kernel's counters, in the files of both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.system.oom import Kills, size


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


def test_a_container_of_version_2(tmp_path: Path) -> None:
    assert Kills.now(tree(tmp_path, V2)) == Kills(group=2, machine=7, limit=512 << 20)


def test_a_container_of_version_1_whose_path_is_the_machines_and_that_has_no_limit(tmp_path: Path) -> None:
    assert Kills.now(tree(tmp_path, V1)) == Kills(group=2, machine=0, limit=0)


def test_a_process_of_a_machine_with_version_2_below_its_root(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/user.slice/run-1.scope\n",
        "sys/fs/cgroup/user.slice/run-1.scope/memory.events": "oom_kill 1\n",
        "sys/fs/cgroup/user.slice/run-1.scope/memory.max": "max\n",
    }
    assert Kills.now(tree(tmp_path, files)) == Kills(group=1)


def test_where_nothing_can_be_seen_nothing_was_killed(tmp_path: Path) -> None:
    assert Kills.now(tmp_path) == Kills()
    assert Kills.now().since(Kills.now()) == ""


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (Kills(group=1, machine=1, limit=1 << 30), "out of memory: the limit is 1.0 GiB"),
        (Kills(group=1), "out of memory"),
        (Kills(machine=1, limit=1 << 30), "most likely out of memory"),
        (Kills(limit=1 << 30), ""),
    ],
)
def test_what_is_said_of_more_kills_than_before(after: Kills, told: str) -> None:
    said = after.since(Kills(limit=1 << 30))
    assert said.startswith(told)
    assert bool(said) == bool(told)


def test_sizes_are_for_persons() -> None:
    assert [size(64 << 20), size(1536 << 20)] == ["64 MiB", "1.5 GiB"]
