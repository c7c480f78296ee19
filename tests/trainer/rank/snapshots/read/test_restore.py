"""What a run resumes from if its newest snapshot is damaged, incompatible or unreadable."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import torch
from torch import nn

from kittrain import World
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.folder.archive import SnapshotError
from kittrain.rank.snapshots.folder.snapshot import MANIFEST
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.proof import prove
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.world.order import Cursor, Order
from kittrain.rank.world.seeds import derive_seed
from kittrain.system.storage import StorageUnavailableError
from tests.trainer import runs
from tests.trainer.runs import DAMAGE, flip
from tests.trainer.settings import rank_of
from tests.trainer.sharded import Kind, run
from tests.trainer.storage import failing, no_free_descriptors, short_retries
from tests.trainer.worlds import finish, fork

ORDER = Order(samples=100, batch=1)
NOBODY_UID = 65534


class Run:
    """A model that trains without data: its state shows how many steps it took."""

    def __init__(self, folder: Path, kind: type = torch.optim.Adam, order: Order = ORDER, **env: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2)
        self.optimizer: torch.optim.Optimizer = kind(self.model.parameters(), lr=0.1)
        rank_env = rank_of(**{"resume": True, "run_id": "run", "snapshot_dir": folder, **env})
        world = World(env=rank_env, device=torch.device("cpu"))
        self.snapshots = SnapshotManager(world, State(model=self.model, optimizer=self.optimizer), order)
        self.order = order

    def restore(self) -> int:
        """The step that it resumes from."""
        return self.order.step(self.snapshots.restore())

    def train(self, *steps: int) -> list[torch.Tensor]:
        """Train up to each of some steps, with a snapshot there; returns the weights at each."""
        weights, taken = [], 0
        for step in steps:
            for _ in range(taken, step):
                self.optimizer.zero_grad()
                self.model(torch.ones(1, 3)).square().sum().backward()
                self.optimizer.step()
            taken = step
            self.snapshots.commit(Cursor(0, step), {})
            weights.append(self.model.weight.detach().clone())
        return weights


def make_a_folder_of(path: Path) -> None:
    path.unlink()
    path.mkdir()


def empty(path: Path) -> None:
    for entry in path.iterdir():
        entry.unlink()


ALL_DAMAGE: dict[str, Callable[[Path], None]] = {
    **DAMAGE,
    "a shard that cannot be read": lambda path: make_a_folder_of(path / "shard-00000.bin"),
    "a manifest that cannot be read": lambda path: make_a_folder_of(path / MANIFEST),
    "an empty folder": empty,
}


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, list[torch.Tensor]]:
    run = Run(tmp_path)
    assert run.restore() == 0
    return tmp_path, run.train(2, 5)


def test_the_newest_snapshot_is_restored(trained: tuple[Path, list[torch.Tensor]]) -> None:
    folder, weights = trained
    run = Run(folder)
    assert run.restore() == 5
    assert torch.equal(run.model.weight, weights[1])
    assert run.optimizer.state[run.model.weight]["step"] == 5


@pytest.mark.parametrize("damage", ALL_DAMAGE.values(), ids=ALL_DAMAGE)
def test_the_snapshot_before_a_damaged_one_is_used(
    trained: tuple[Path, list[torch.Tensor]], damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, weights = trained
    damage(folder / "step-00000005-g0001")
    run = Run(folder)
    assert run.restore() == 2
    assert torch.equal(run.model.weight, weights[0])
    assert "skipping" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ALL_DAMAGE.values(), ids=ALL_DAMAGE)
def test_with_all_damaged_restore_needs_from_scratch(
    trained: tuple[Path, list[torch.Tensor]], damage: Callable[[Path], None]
) -> None:
    folder, _ = trained
    for path in folder.glob("step-*"):
        damage(path)
    for _ in range(2):  # the second time they are quarantined
        with pytest.raises(SnapshotError, match="training does not start from scratch"):
            Run(folder).restore()
    run, fresh = Run(folder, from_scratch=True), Run(folder)
    assert run.restore() == 0
    assert torch.equal(run.model.weight, fresh.model.weight)
    assert not run.optimizer.state


def test_a_transient_read_error_is_logged_and_retried(
    trained: tuple[Path, list[torch.Tensor]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The first read of a shard fails: the snapshot is read at the next attempt."""
    folder, weights = trained
    shard = folder / "step-00000005-g0001" / "shard-00000.bin"
    run = Run(folder)
    with failing(shard, errno.EIO, times=1) as failed:
        assert run.restore() == 5
    assert failed == [shard]
    assert torch.equal(run.model.weight, weights[1])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Input/output error" in line]
    assert str(shard) in line
    assert shard.exists()


def test_a_storage_that_never_responds_is_an_error(trained: tuple[Path, list[torch.Tensor]]) -> None:
    folder, _ = trained
    shard = folder / "step-00000005-g0001" / "shard-00000.bin"
    with short_retries(), failing(shard, errno.EIO), pytest.raises(StorageUnavailableError, match=str(shard)):
        Run(folder, from_scratch=True).restore()
    assert Run(folder).restore() == 5


def test_too_many_open_files_are_waited_for(trained: tuple[Path, list[torch.Tensor]]) -> None:
    assert finish(fork(restore_without_files, trained[0])) == 0


def restore_without_files(folder: Path) -> None:
    Run(folder).restore()  # imports what it needs
    with short_retries(), no_free_descriptors(), pytest.raises(StorageUnavailableError, match="Too many open files"):
        Run(folder).restore()
    with no_free_descriptors() as release:
        Timer(0.5, release).start()
        assert Run(folder).restore() == 5


def test_other_runs_are_restored_only_with_resume(trained: tuple[Path, list[torch.Tensor]]) -> None:
    folder, _ = trained
    assert Run(folder, run_id="another", resume=False).restore() == 0
    assert Run(folder, run_id="another").restore() == 5


OTHER = Order(samples=60, batch=2, seed=1)


def test_another_order_is_an_error_or_a_new_segment(
    trained: tuple[Path, list[torch.Tensor]], capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot be resumed exactly; with ``resume: state`` its weights and optimizer can, as a new segment."""
    folder, weights = trained
    differs = "its data set's size is 100, not 60; its batch size is 1, not 2; its seed is 0, not 1"
    with pytest.raises(SnapshotError, match=f"step-00000005-g0001 is of run run, but {differs}; .*--resume-state"):
        Run(folder, order=OTHER, run_id="another").restore()
    run = Run(folder, order=OTHER, run_id="another", resume="state")
    assert run.restore() == 0
    assert torch.equal(run.model.weight, weights[1])
    assert run.optimizer.state[run.model.weight]["step"] == 5
    assert differs in capsys.readouterr().out
    run.snapshots.commit(Cursor(0, 4), {})
    run.snapshots.commit(Cursor(1, 2), {})
    # After a restart it resumes exactly, with or without ``resume: state``; the old snapshots are kept.
    for resume in ("state", True, False):
        again = Run(folder, order=OTHER, run_id="another", resume=resume, snapshots__keep=1)
        assert again.restore() == 31
    again.snapshots.commit(Cursor(1, 4), {})
    manifests = {path.name: snapshot.read_manifest(path) for path in folder.glob("step-*")}
    newest = snapshot.name(32, again.snapshots.generation)
    assert manifests.keys() == {"step-00000002-g0001", "step-00000005-g0001", newest}
    proof = prove(manifests[newest], manifests)
    assert (proof.broken, proof.epochs, proof.position, proof.counted, proof.steps) == ("", 1, 4, 64, 32)
    (earlier,) = proof.earlier
    assert (earlier.samples, earlier.batch, earlier.seed) == (100, 1, 0)
    assert (earlier.epochs, earlier.position, earlier.counted, earlier.steps) == (0, 5, 5, 5)


def test_an_interrupted_epoch_starts_over_in_the_new_order(trained: tuple[Path, list[torch.Tensor]]) -> None:
    folder, _ = trained
    run = Run(folder)
    run.restore()
    run.snapshots.commit(Cursor(2, 7), {})
    branched = Run(folder, order=OTHER, resume="state")
    assert branched.restore() == 60, "two epochs of 30 steps: complete epochs count"
    branched.snapshots.commit(Cursor(2, 2), {})
    manifest = snapshot.read_manifest(folder / "step-00000061-g0003")
    assert manifest.cursor == Cursor(2, 2)
    proof = prove(manifest, {})
    assert (proof.broken, proof.before, proof.epochs, proof.counted, proof.steps) == ("", 2, 0, 2, 1)
    assert (proof.earlier[0].epochs, proof.earlier[0].position) == (2, 7)
    back = Run(folder, resume="state")
    assert back.restore() == 200, "and back again, by another segment"


def test_another_optimizer_is_an_error_with_resume_state_too(trained: tuple[Path, list[torch.Tensor]]) -> None:
    folder, _ = trained
    with pytest.raises(SnapshotError, match="its optimizer is Adam, not SGD; its data set's size is 100, not 60"):
        Run(folder, kind=torch.optim.SGD, order=OTHER, resume="state").restore()


@pytest.mark.parametrize("size", [1, 3])
def test_generators_are_restored_only_with_the_same_number_of_ranks(
    trained: tuple[Path, list[torch.Tensor]], size: int
) -> None:
    """Not with more or fewer ranks: no two ranks may draw the same numbers."""
    folder, _ = trained
    for path in folder.glob("step-*"):
        runs.resign(path, world_size=size)
    torch.manual_seed(77)
    assert Run(folder).restore() == 5
    expected = derive_seed("rank", ORDER.seed, 5, 0)
    assert (torch.initial_seed() == expected) == (size != 1)


def test_another_optimizer_is_an_error(trained: tuple[Path, list[torch.Tensor]]) -> None:
    folder, _ = trained
    with pytest.raises(SnapshotError, match="step-00000005-g0001 is of this run, but its optimizer"):
        Run(folder, kind=torch.optim.Adagrad).restore()


def test_another_version_of_torch_is_read(trained: tuple[Path, list[torch.Tensor]]) -> None:
    folder, weights = trained
    path = folder / "step-00000005-g0001"
    manifest = snapshot.read_manifest(path)
    assert manifest.torch == torch.__version__
    snapshot.write_manifest(path, replace(manifest, torch="1.13.0"))
    run = Run(folder)
    assert run.restore() == 5
    assert torch.equal(run.model.weight, weights[1])


def test_a_read_only_folder_is_an_error(trained: tuple[Path, list[torch.Tensor]]) -> None:
    folder, _ = trained
    assert finish(fork(restore_as_nobody, folder, "no snapshots can be written")) == 0


def restore_as_nobody(folder: Path, message: str) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555)
    if os.getuid() == 0:
        for parent in folder.parents[:3]:  # the last may be /tmp, which others use
            parent.chmod(stat.S_IMODE(parent.stat().st_mode) | 0o055)
        os.setuid(NOBODY_UID)
    with pytest.raises(SnapshotError, match=message):
        Run(folder).restore()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["replicated", "sharded"])
@pytest.mark.parametrize("newest_only", [True, pytest.param(False, marks=pytest.mark.wide)])
def test_all_ranks_skip_what_one_rank_finds_damaged(tmp_path: Path, kind: Kind, *, newest_only: bool) -> None:
    """Rank 1 wrote the damaged shard; of a sharded state only rank 1 reads it."""
    folder = tmp_path / "snapshots"
    folder.mkdir()
    assert run([folder] * 3, kind, 1) == [0, 0, 0]
    whole = torch.load(folder / "model.pt", weights_only=True)
    paths = sorted(folder.glob("step-*"))
    assert len(paths) == 2
    for path in paths[1:] if newest_only else paths:
        flip(path / "shard-00001.bin", 3)
    from_scratch: dict[str, str] = {}
    if not newest_only:
        assert all(run([folder] * 3, kind, 1))
        for rank in range(3):
            assert "SnapshotError: no snapshot in" in (tmp_path / f"log-{rank}").read_text()
        from_scratch["KIT_FROM_SCRATCH"] = "1"
    assert run([folder] * 3, kind, 1, env=from_scratch) == [0, 0, 0]
    log = (tmp_path / "log-0").read_text()
    assert log.count("shard-00001.bin differs from its checksum") >= (1 if newest_only else 2)
    assert ("resuming after step 2" in log) == newest_only
    again = torch.load(folder / "model.pt", weights_only=True)
    torch.testing.assert_close(again, whole, rtol=0, atol=0)


@pytest.mark.slow
def test_without_a_shared_folder_rank_0_writes_and_reads_for_all(tmp_path: Path) -> None:
    folders = [tmp_path / str(rank) for rank in range(3)]
    folders[0].mkdir()
    for folder in folders[1:]:  # the path of rank 0's claim exists, too, but is another file
        (folder / ".fence").mkdir(parents=True)
        (folder / ".fence" / "0001").write_text("run of another time")
    assert run(folders, "replicated", 1) == [0, 0, 0]
    assert run(folders, "replicated", 2) == [0, 0, 0]
    log = (tmp_path / "log-0").read_text()
    assert "rank 1 does not see what rank 0 wrote; rank 0 writes all of each snapshot" in log
    assert "resuming after step 4" in log
    (newest, *_) = sorted(folders[0].glob("step-*"), reverse=True)
    assert [path.name for path in sorted(newest.iterdir())] == [MANIFEST, "shard-00000.bin"]
    assert snapshot.verify(newest).world_size == 3
    assert not list(folders[1].glob("step-*"))


@pytest.mark.slow
def test_a_sharded_state_needs_a_shared_folder(tmp_path: Path) -> None:
    folders = [tmp_path / str(rank) for rank in range(2)]
    for folder in folders:
        folder.mkdir()
    assert all(code != 0 for code in run(folders, "sharded", 1))
    assert "need a shared folder" in (tmp_path / "log-0").read_text()
