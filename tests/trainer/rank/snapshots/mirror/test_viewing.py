"""What the commands about snapshots see of a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from kittrain.rank.snapshots.mirror.errors import MirrorError
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.rank.snapshots.mirror.viewing import fetch_one, inspect_all
from tests.s3 import S3
from tests.trainer import runs
from tests.trainer.rank.snapshots.mirror.test_writing import add, mirror

pytestmark = pytest.mark.timeout(1800)  # the first one may build the server


def test_each_snapshot_has_its_condition(s3: S3, store: Store, url: str, tmp_path: Path) -> None:
    one, scratch = mirror(store, "a"), tmp_path / "scratch"
    (there := tmp_path / "there").mkdir()
    manifests = runs.run(there, 1, 2, 3)
    for manifest in manifests:
        add(one, there, manifest)
    scratch.mkdir()
    assert {info.condition for info in inspect_all(store, scratch)} == {"whole"}
    objects = s3.root / url.removeprefix("s3://") / "data" / "a"
    runs.flip(objects / manifests[1].name / "shard-00000.bin")
    (objects / manifests[2].name / "shard-00000.bin").unlink()
    seen = {info.step: (info.condition, info.reason.partition(" ")[2]) for info in inspect_all(store, scratch)}
    assert seen == {3: ("damaged", "is missing, or has another size"), 2: ("whole", ""), 1: ("whole", "")}
    verified = inspect_all(store, scratch, verify=True)
    assert [info.condition for info in verified] == ["damaged", "damaged", "verified"]
    assert list(scratch.iterdir()) == [], "what was read takes no space"
    fetch_one(store, scratch, manifests[0].name)
    assert [path.name for path in scratch.iterdir()] == [manifests[0].name]


def test_a_prefix_without_a_mirror_is_told(store: Store, tmp_path: Path) -> None:
    with pytest.raises(MirrorError, match="nothing was copied there; fix: give the prefix"):
        inspect_all(store, tmp_path)
