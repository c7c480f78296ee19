"""Each node has a folder of its own: one is lost with everything in it, and the job goes on exactly."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kitctl.targets.local import memory_folders
from kittrain.rank.snapshots.mirror.fetching import fetch
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.rank.world.order import Order
from tests.exact import assert_each_sample_counts_once, assert_ends_as_undisturbed, committed, undisturbed
from tests.s3 import serving
from tests.s3_proxy import Fault, Proxy, Rule, Seen, in_front_of

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

EPOCHS, SAMPLES, BATCH = 4, 512, 16
ORDER = Order(samples=SAMPLES, batch=BATCH, seed=3)
WORKLOAD = f"-m kittrain.workloads.toy {EPOCHS} --samples {SAMPLES} --batch_size {BATCH} --seed 3".split()
LONGER = [*WORKLOAD[:2], str(2 * EPOCHS), *WORKLOAD[3:]]  # time for more commands while it trains
FAILED, INVALID = 100, 2
PLAIN = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
"""
URL = "s3://copies/run"
IN_MEMORY = ("--set", "snapshots.storage=memory", "--set", f"snapshots.mirror={URL}")
DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
UNSTEADY = {0: Fault(status=503), 2: Fault(delay=0.5)}  # of some requests each
APART = ("--nodes", "3", "--snapshot-every", "10", "--set", "snapshots.storage=perNode")

SHAPES = {
    "spare": ("--nodes", "2+1"),
    "elastic": ("--nodes", "2:4", "--set", "policy.growEvery=2s"),
    "live": ("--nodes", "3", "--set", "policy.survivors=live"),
}


def lose(kit: Kit, name: str, *nodes: int) -> None:
    """All processes of these nodes die at once, and their folders are gone."""
    gone = kit.folder / f"gone-{time.monotonic()}"
    gone.mkdir()
    with kit.killing(name, *nodes):
        for node in nodes:
            (kit.snapshots(name) / f"node-{node}").rename(gone / str(node))
    shutil.rmtree(gone, ignore_errors=True)


def waits_at(folder: Path, step: int) -> tuple[tuple[str, ...], Path]:
    """Words of a workload that waits at that step until a file is there, and the file.

    What copies and uploads has a low priority: where other processes keep the processors busy, training may be over
    before, or before a test has seen it.
    """
    path = folder / f"step-{step}-may-end"
    return ("--wait-at", str(step), str(path)), path


@contextmanager
def goes_on_after(folder: Path, step: int) -> Iterator[tuple[str, ...]]:
    """Words of a workload that waits at that step until the context ends."""
    words, path = waits_at(folder, step)
    yield words
    path.touch()


def copied(after: int, job: dict[str, Any]) -> bool:
    """Whether all nodes train, and a snapshot after that step is on two of them."""
    copies = job["copies"] or {}
    return bool(job["phase"] == "Running" and (copies.get("copied_step") or copies.get("copiedStep") or 0) > after)


def guarded(after: int, nodes: int, job: dict[str, Any]) -> bool:
    """The same, and so many nodes are there, with spares."""
    return copied(after, job) and job["readyNodes"] + len(job["spares"]) == nodes


def test_nodes_are_lost_with_their_folders_and_each_sample_counts_once(kit: Kit) -> None:
    records = kit.folder / "records"
    gates = {step: waits_at(kit.folder, step) for step in (45, 90)}
    words = (*WORKLOAD, *gates[45][0], *gates[90][0], "--record", str(records))
    kit.run("submit", "--name", "apart", *APART, *words)
    reached = 0
    for node, step in ((0, 45), (2, 90)):
        reached = kit.until("apart", partial(copied, reached + 20))["progress"]["step"]
        lose(kit, "apart", node)
        gates[step][1].touch()
    kit.run("wait", "apart")
    assert "Copies     2 of 2, step" in kit.run("status", "apart")

    ledger = assert_each_sample_counts_once(kit.snapshots("apart") / "node-1", records, ORDER, epochs=EPOCHS)
    assert len({entry.generation for entry in ledger}) > 2, "the losses left no trace in the history"
    assert f"proved: {EPOCHS} epochs" in kit.run("audit", "apart")
    alone = undisturbed(WORKLOAD, kit.folder, ranks=3)
    model = next(kit.snapshots("apart").glob("node-*/model.pt"))
    ours, theirs = (torch.load(at, weights_only=True) for at in (model, alone / "model.pt"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
@pytest.mark.parametrize(
    ("shape", "storage"),
    [
        *((shape, "perNode") for shape in SHAPES),
        ("spare", "memory"),
        *(pytest.param(shape, "memory", marks=pytest.mark.long) for shape in SHAPES if shape != "spare"),
    ],
)
def test_copies_are_enough_whoever_takes_the_place_of_a_lost_node(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, shape: str
) -> None:
    """Node 0 is lost, then another one that trains; a spare, fewer nodes, or ranks that live on have the state."""
    records, epochs, whole = kit.folder / "records", 2 * EPOCHS, kit.folder / "whole"
    words = (*WORKLOAD[:2], str(epochs), *WORKLOAD[3:], "--step-time", "0.05", "--record", str(records))
    # Ranks that wait within a step do not let the job grow.
    gates = [waits_at(kit.folder, step) for step in (45, 100)] if shape != "elastic" else []
    words += tuple(word for gate, _ in gates for word in gate)
    options = ("--snapshot-every", "10", *SHAPES[shape], *(IN_MEMORY if storage == "memory" else APART[-2:]))
    nodes = 4 if shape == "elastic" else 3
    with behind_a_proxy(tmp_path / "s3", monkeypatch):
        kit.run("submit", "--name", "job", *options, *words)
        reached = 0
        for last in (False, True):
            job = kit.until("job", partial(guarded, reached + 20, nodes))
            reached, trains = job["progress"]["step"], [one["index"] for one in job["nodes"] if one["ranks"]]
            lost = trains[-1] if last else trains[0]
            if storage == "perNode":
                lose(kit, "job", lost)
            else:
                kit.kill("job", lost)
            for _, path in gates[last : last + 1]:
                path.touch()
        kit.run("wait", "job")
        log = kit.run("logs", "job")
        if storage == "memory":
            assert "comes from" not in log, "the other nodes had it"
            assert fetch(Store(URL), whole, run="", resume=True, log=print)
            kit.run("snapshots", "export", URL, "-o", str(whole / "model.pt"))
            assert f"proved: {epochs} epochs" in kit.run("audit", URL)
        else:
            assert f"proved: {epochs} epochs" in kit.run("audit", "job")
            (model,) = kit.snapshots("job").glob("node-*/model.pt")
            whole = model.parent
    assert len({entry.generation for entry in committed(whole)}) > 2, "the losses left no trace in the history"
    if shape == "live":  # a killed rank has not recorded its last step, which the others have finished
        assert log.count(", in the memory of the ranks that are left, ") == 2, "no snapshot is read"
        alone = undisturbed([*WORKLOAD[:2], str(epochs), *WORKLOAD[3:]], kit.folder, ranks=3)
        assert_ends_as_undisturbed(whole, records, alone)
    else:
        assert_each_sample_counts_once(whole, records, ORDER, epochs=epochs)


@pytest.mark.wide
def test_two_nodes_are_lost_at_once_and_the_job_ends_with_the_reason(kit: Kit) -> None:
    with goes_on_after(kit.folder, 45) as then:
        kit.run("submit", "--name", "both", *APART, *WORKLOAD, *then)
        kit.until("both", partial(copied, 20))
        lose(kit, "both", 1, 2)
    assert "no node that is left has some of its parts" in kit.run("wait", "both", exit_code=FAILED)
    assert "which no restart can fix" in kit.run("logs", "both")
    why = kit.run("why", "both")
    assert "nodes were lost at once that had all copies of parts of the snapshots" in why
    assert "kitctl restart both starts it again" in why


@pytest.mark.wide
def test_two_nodes_that_come_back_with_their_folders_are_waited_for(kit: Kit) -> None:
    elastic = (*APART[2:], "--nodes", "1:3", "--set", "policy.maxRestarts=0")
    with goes_on_after(kit.folder, 45) as then:
        kit.run("submit", "--name", "back", *elastic, *WORKLOAD, "--step-time", "0.05", *then)
        kit.until("back", partial(copied, 20))
        kit.kill("back", 1, 2)
    kit.run("wait", "back")
    assert "no node that is here has all of step-" in kit.run("logs", "back")
    assert f"proved: {EPOCHS} epochs" in kit.run("audit", "back")


@pytest.mark.wide
def test_all_nodes_are_lost_with_all_they_had_and_the_new_beginning_is_told(kit: Kit) -> None:
    with goes_on_after(kit.folder, 45) as then:
        kit.run("submit", "--name", "zero", *APART, *WORKLOAD, "--step-time", "0.05", *then)
        kit.until("zero", partial(copied, 20))
        lose(kit, "zero", 0, 1, 2)
    job = kit.until("zero", lambda job: job["phase"] == "Running" and "resumed at step 0" in job["reason"])
    assert re.search(r"resumed at step 0: at least \d+ steps lost", job["reason"])
    kit.run("wait", "zero")
    assert f"proved: {EPOCHS} epochs" in kit.run("audit", "zero")


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
def test_all_nodes_are_lost_at_once_and_the_mirror_has_what_they_had(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = kit.folder / "records"
    with serving(tmp_path / "s3") as server:
        server.bucket("copies")
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        mirror = ("--set", "snapshots.mirror=s3://copies/run")
        words = (*WORKLOAD, "--step-time", "0.05", "--record", str(records))
        with goes_on_after(kit.folder, 45) as then:
            kit.run("submit", "--name", "all", *APART, *mirror, *words, *then)
            kit.until("all", lambda job: job["mirror"] and (job["mirror"]["step"] or 0) > 20)
            lose(kit, "all", 0, 1, 2)
        kit.run("wait", "all")
        assert "comes from s3://copies/run" in kit.run("logs", "all")
        job = kit.status("all")
        assert job["mirror"]["step"] == EPOCHS * ORDER.steps_per_epoch
        assert f"proved: {EPOCHS} epochs" in kit.run("audit", "s3://copies/run")
    newest = max(kit.snapshots("all").glob("node-*"), key=lambda one: (one / "model.pt").exists())
    assert_each_sample_counts_once(newest, records, ORDER, epochs=EPOCHS)


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
def test_the_node_that_uploads_is_lost_after_the_others_have_ended(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not come back, and what takes its place has an empty folder: it ends, and what is missing is told."""
    with behind_a_proxy(tmp_path / "s3", monkeypatch):
        with goes_on_after(kit.folder, 25) as then:
            kit.run("submit", "--name", "end", *APART, "--set", f"snapshots.mirror={URL}", *WORKLOAD, *then)
            kit.until("end", mirrored)
            for pid in uploading(kit, "end", 0):
                os.kill(pid, signal.SIGSTOP)
        kit.until("end", lambda job: [one["state"] for one in job["nodes"][1:]] == ["Done", "Done"])
        step = kit.status("end")["mirror"]["step"]
        lose(kit, "end", 0)
        kit.run("wait", "end")
    job = kit.status("end")
    assert job["restarts"] == 1
    assert f"its newest snapshot is of step {step}; the node that uploaded it is lost" in job["reason"]
    assert job["progress"]["step"] == EPOCHS * ORDER.steps_per_epoch


@pytest.mark.timeout(1800)  # it may build the server
def test_what_was_in_memory_is_in_the_mirror_when_all_nodes_end(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, epochs = "s3://copies/run", 3 * EPOCHS  # it is suspended before
    workload = [*WORKLOAD[:2], str(epochs), *WORKLOAD[3:]]
    with serving(tmp_path / "s3") as server:
        server.bucket("copies")
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        gates = [waits_at(kit.folder, step) for step in (45, 90, 135)]
        words = (*workload, "--step-time", "0.05", *(word for gate, _ in gates for word in gate))
        memory = ("--set", "snapshots.storage=memory", "--set", f"snapshots.mirror={url}")
        kit.run("submit", "--name", "light", "--nodes", "3", "--snapshot-every", "10", *memory, *words)
        reached = 0
        for node, (_, gate) in zip((0, 2), gates, strict=False):  # each with its memory
            reached = kit.until("light", partial(copied, reached + 20))["progress"]["step"]
            kit.kill("light", node)
            gate.touch()
        kit.until("light", partial(copied, reached + 20))
        assert "comes from" not in kit.run("logs", "light"), "the other nodes had it"
        parts = [link.resolve() for link in kit.snapshots("light").glob("node-*")]
        assert len(parts) == 3
        assert {part.parent for part in parts} == {memory_folders.ROOT}
        gates[2][1].touch()

        kit.run("suspend", "light")
        kit.until("light", lambda _: not any(part.exists() for part in parts))
        page = kit.run("status", "light")
        assert "was in the memory of each node, and is gone with it" in page
        assert f", which is in {url}; on another cluster: kitctl submit --continue {url} ..." in page
        stopped = kit.status("light")["progress"]["step"]
        (newest, *_) = json.loads(kit.run("snapshots", "list", url, "-o", "json"))["items"]
        assert newest["step"] == stopped, "the last step of a drained job was in memory only"
        assert f"ask for {url} instead of light" in kit.run("snapshots", "list", "light", exit_code=2)
        kit.run("resume", "light")
        kit.run("wait", "light")

        assert f"comes from {url}" in kit.run("logs", "light")
        assert f"proved: {epochs} epochs" in kit.run("audit", url)
        kit.run("snapshots", "export", url, "-o", str(kit.folder / "model.pt"))
    alone = undisturbed(workload, kit.folder, ranks=3)
    ours, theirs = (torch.load(at, weights_only=True) for at in (kit.folder / "model.pt", alone / "model.pt"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not [*kit.snapshots("light").glob("node-*")]


@contextmanager
def behind_a_proxy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A bucket ``copies`` whose server is reached by a proxy, with credentials in the environment."""
    with serving(folder) as server, in_front_of(server.url) as proxy:
        server.bucket("copies")
        for name, value in server.environ(proxy.url).items():
            monkeypatch.setenv(name, value)
        yield proxy


def uploading(kit: Kit, name: str, node: int) -> list[int]:
    """The process of a node that uploads."""
    family = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in kit.family(name, node)}
    found = [pid for pid, words in family.items() if b"kittrain.rank.snapshots.mirror" in words]
    assert found, "nothing uploads there"
    return found


def holds_on(job: dict[str, Any]) -> bool:
    """Whether training has ended, and one node has not."""
    return "training has ended, and this node stays" in job["reason"]


def mirrored(job: dict[str, Any]) -> bool:
    """Whether the bucket has a snapshot."""
    return bool(job["mirror"] and job["mirror"]["step"])


def denies(seen: Seen) -> Fault | None:
    """No right to write."""
    return Fault(status=403, replayed=DENIED) if seen.method in {"PUT", "POST"} else None


def denies_all_but_the_first() -> Rule:
    """No right to write, once a snapshot is there: a test that switched would have to be faster than an upload."""
    published = False

    def rule(seen: Seen) -> Fault | None:
        nonlocal published
        fault = denies(seen) if published else None
        index = seen.method == "PUT" and seen.path.endswith("mirror.json")
        published = published or (index and bool(json.loads(seen.body)["snapshots"]))
        return fault

    return rule


def submit_in_memory(kit: Kit, name: str, *more: str, workload: Sequence[str] = LONGER) -> None:
    """A job of three nodes whose snapshots are uploaded while it trains; ``more``: options."""
    options = ("--nodes", "3", "--snapshot-every", "10", *IN_MEMORY, *more)
    kit.run("submit", "--name", name, *options, *workload, "--step-time", "0.05")


def submit_denied(
    kit: Kit, proxy: Proxy, name: str, *more: str, workload: Sequence[str] = LONGER, then: Sequence[str] = ()
) -> None:
    """The same, whose mirror gets one of its first snapshots, and no more; ``then``: further words of the workload."""
    proxy.rule = denies_all_but_the_first()
    with goes_on_after(kit.folder, 25) as first:
        submit_in_memory(kit, name, *more, workload=(*workload, *first, *then))
        kit.until(name, mirrored)


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
def test_a_job_whose_mirror_takes_no_more_ends_once_that_has_all(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind_a_proxy(tmp_path / "s3", monkeypatch) as proxy:
        with goes_on_after(kit.folder, 45) as then:
            submit_denied(kit, proxy, "held", workload=WORKLOAD, then=then)
            kit.until("held", lambda job: copied(20, job) and job["mirror"]["warning"])
            for verb in ("suspend", "restart"):
                refused = kit.run(verb, "held", exit_code=INVALID)
                assert f"{verb} would lose what 'held' has in memory: its mirror has step" in refused
            kit.kill("held", 0)  # what replaces it has never seen the bucket take anything
        job = kit.until("held", lambda job: holds_on(job) and job["restarts"])
        assert job["mirror"]["step"], "what it has is told, although the new node may not write it"
        assert (job["phase"], job["restarts"]) == ("Running", 1)
        assert "let the bucket take what is in memory" in kit.run("why", "held")
        assert "training has ended, and this node stays" in kit.run("events", "held")
        proxy.rule = lambda _: None
        kit.run("wait", "held")
        assert kit.status("held")["mirror"]["step"] == EPOCHS * ORDER.steps_per_epoch
        assert f"proved: {EPOCHS} epochs" in kit.run("audit", URL)


def behind(after: int, job: dict[str, Any]) -> bool:
    """Whether all nodes train, and something is being uploaded."""
    return copied(after, job) and bool(job["mirror"]["behind"])


def uploads(other_than: int, job: dict[str, Any]) -> bool:
    """Whether another node uploads at the end."""
    return bool(job["mirror"] and job["mirror"]["node"] not in {None, other_than})


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
def test_two_nodes_that_hold_on_are_lost_in_a_row_and_the_third_uploads(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind_a_proxy(tmp_path / "s3", monkeypatch) as proxy:
        submit_denied(kit, proxy, "row")
        job = kit.until("row", holds_on)
        for _ in range(2):
            lost = job["mirror"]["node"]
            kit.kill("row", lost)
            job = kit.until("row", partial(uploads, lost))
            assert job["phase"] == "Running"
            kit.until("row", lambda job: job["mirror"]["warning"])
        proxy.rule = lambda seen: UNSTEADY.get(len(proxy.seen) % 5) if seen.method == "PUT" else None
        kit.run("wait", "row")
        job = kit.status("row")
        assert (job["phase"], job["mirror"]["step"]) == ("Succeeded", 2 * EPOCHS * ORDER.steps_per_epoch)
        assert f"proved: {2 * EPOCHS} epochs" in kit.run("audit", URL)


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
def test_the_node_that_uploads_is_lost_while_it_trains_and_another_one_goes_on(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind_a_proxy(tmp_path / "s3", monkeypatch) as proxy:
        proxy.rule = lambda seen: UNSTEADY.get(len(proxy.seen) % 5) if seen.method == "PUT" else None
        submit_in_memory(kit, "mid")
        reached = 0
        for _ in range(2):
            job = kit.until("mid", partial(behind, reached + 20))
            reached = job["progress"]["step"]
            kit.kill("mid", job["mirror"]["node"])
        kit.run("wait", "mid")
        assert kit.status("mid")["mirror"]["step"] == 2 * EPOCHS * ORDER.steps_per_epoch
        assert "comes from" not in kit.run("logs", "mid"), "the other nodes had it"
        assert f"proved: {2 * EPOCHS} epochs" in kit.run("audit", URL)


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
def test_a_node_that_was_taken_for_lost_at_the_end_is_fenced_off(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind_a_proxy(tmp_path / "s3", monkeypatch) as proxy:
        submit_denied(kit, proxy, "frozen")
        first = kit.until("frozen", holds_on)["mirror"]["node"]
        stopped = kit.family("frozen", first)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            kit.until("frozen", partial(uploads, first))
            proxy.rule = lambda _: None
            last = 2 * EPOCHS * ORDER.steps_per_epoch
            kit.until("frozen", lambda job: uploads(first, job) and job["mirror"]["step"] == last)
            put = len([one for one in proxy.seen if one.method == "PUT"])
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        kit.run("wait", "frozen")
        written = [one.path for one in proxy.seen if one.method == "PUT"][put:]
        assert not [path for path in written if path.endswith("mirror.json")], "what is fenced off publishes nothing"
        assert "is now written by another node of this run" in kit.run("logs", "frozen")
        assert f"proved: {2 * EPOCHS} epochs" in kit.run("audit", URL)


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
def test_all_nodes_that_hold_on_are_lost_or_cancelled_and_nobody_waits_for_them(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind_a_proxy(tmp_path / "s3", monkeypatch) as proxy:
        submit_denied(kit, proxy, "alone", "--set", "policy.gracePeriod=15s")
        kit.until("alone", holds_on)
        kit.kill("alone", 0, 1, 2)
        kit.run("wait", "alone", exit_code=FAILED)
        step = kit.status("alone")["mirror"]["step"]
        why = kit.run("why", "alone")
        assert f"{URL} did not take it: its newest snapshot is of step {step}" in why
        assert f"kitctl restart alone continues from step {step}, which is in {URL}" in why
        proxy.rule = denies_all_but_the_first()
        kit.run("restart", "alone")
        kit.until("alone", holds_on)
        kit.run("cancel", "alone")
        assert kit.status("alone")["phase"] == "Cancelled"
        proxy.rule = lambda _: None
        kit.run("restart", "alone")
        kit.run("wait", "alone")
        assert f"proved: {2 * EPOCHS} epochs" in kit.run("audit", URL)


@pytest.mark.wide
@pytest.mark.timeout(1800)  # it may build the server
def test_what_a_mirror_never_took_is_a_failure_and_what_it_has_goes_on(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = ("--set", "snapshots.mirrorTimeout=10s")
    with behind_a_proxy(tmp_path / "s3", monkeypatch) as proxy:
        proxy.rule = denies
        denied = "the credentials may not read and write there (AccessDenied)"
        never = ("submit", "--name", "never", "--nodes", "3", "--snapshot-every", "10", *IN_MEMORY, *soon)
        assert denied in kit.run(*never, *WORKLOAD, exit_code=INVALID)
        assert denied in kit.run(*never, "--no-checks", "--wait", *WORKLOAD, exit_code=FAILED)
        assert "training with" not in kit.run("logs", "never")

        submit_denied(kit, proxy, "part", *soon, workload=WORKLOAD)
        assert "and what they have trained is lost: s3://copies/run" in kit.run("wait", "part", exit_code=FAILED)
        step = kit.status("part")["mirror"]["step"]
        why = kit.run("why", "part")
        assert f"{URL} did not take it: its newest snapshot is of step {step}" in why
        assert f"kitctl restart part continues from step {step}, which is in {URL}" in why
        proxy.rule = lambda _: None
        # With the time that is the default: in ten seconds what uploads, at a low priority, may not get as far as that.
        again = ("submit", "--name", "part", "--replace", "--continue", URL, "--nodes", "3", *IN_MEMORY)
        kit.run(*again, "--wait", *WORKLOAD)
        assert f"resuming after step {step}" in kit.run("logs", "part")
        assert f"proved: {EPOCHS} epochs" in kit.run("audit", URL)


@pytest.mark.wide
def test_a_script_that_saves_by_itself_is_refused_with_the_fix(kit: Kit) -> None:
    (kit.folder / "plain.py").write_text(PLAIN)
    refused = kit.run("submit", "--name", "plain", *APART, "plain.py", exit_code=2)
    assert "and plain.py trains without kittrain" in refused
    assert "fix: snapshots.storage: claim" in refused
    output = kit.run("submit", "--name", "plain", *APART, "--no-checks", "--wait", "plain.py", exit_code=FAILED)
    assert "OwnFolderError: snapshots.storage: perNode keeps copies of the snapshots of kittrain.Training" in output
    assert "fix: snapshots.storage: claim, whose folder all nodes share" in output
