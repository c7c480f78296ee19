"""Ranks that exit with 0 because of a drain have not finished: their node is drained, not done."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from kitjob import document
from kitjob.job_keys import JobKeys
from kitjob.run import RunFacts
from tests.trainer.nodes import SCRIPTS, Nodes

pytestmark = pytest.mark.slow

# Saves its step and exits with 0 on SIGTERM, without the library.
PLAIN = """
import os, signal, sys, time
from pathlib import Path
saved = Path(os.environ["KIT_SNAPSHOT_DIR"]) / "saved"
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
step = int(saved.read_text()) if saved.exists() else 0
print("resuming after step", step)
while step < 40 or not (saved.parent / "enough").exists():
    time.sleep(0.02)
    step += 1
    if stopping:
        saved.write_text(str(step))
        print("saved step", step)
        sys.exit(0)
print("finished")
"""
IN_THE_HANDLER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("resuming")
time.sleep(600)
"""


# Takes longer to save than ranks get whose peers are lost.
SLOW_TO_SAVE = """
import os, signal, sys, time
from pathlib import Path
folder = Path(os.environ["KIT_SNAPSHOT_DIR"])
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
print("world of", os.environ["WORLD_SIZE"])
while not (folder / "enough").exists():
    time.sleep(0.02)
    if stopping:
        time.sleep(4)
        (folder / "saved").touch()
        sys.exit(0)
"""


def script(folder: Path, text: str) -> str:
    path = folder / "plain.py"
    path.write_text(text)
    return str(path)


def test_a_plain_script_that_saves_and_exits_with_0_resumes(tmp_path: Path) -> None:
    with Nodes(tmp_path, script(tmp_path, PLAIN), nodes="1") as nodes:
        nodes.start(0)
        nodes.until(0, "resuming after step 0")
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 75
        assert nodes.end(0)["outcome"] == "drained"
        assert "drained: received a stop signal" in nodes.output(0)
        nodes.start(0)
        nodes.until(0, "resuming after step", times=2)
        assert "resuming after step 0" not in nodes.output(0).rpartition("saved step")[2]
        nodes.finish()
        assert nodes.wait(0) == 0
        assert nodes.end(0)["outcome"] == "done"


def test_an_exit_in_the_handler_and_a_signal_to_all_processes_are_the_same(tmp_path: Path) -> None:
    with Nodes(tmp_path, script(tmp_path, IN_THE_HANDLER), nodes="1", PET_NPROC_PER_NODE="2") as nodes:
        nodes.start(0)
        nodes.until(0, "resuming", times=2)
        for pid in [nodes.pid(0), *nodes.ranks(0)]:  # as a service manager signals a whole cgroup
            os.kill(pid, signal.SIGTERM)
        assert nodes.wait(0) == 75


def test_a_kubeflow_job_has_its_own_exit_code(tmp_path: Path) -> None:
    codes = {"done": 0, "drained": 143, "retryable": 144, "fatal": 78}
    with Nodes(tmp_path, script(tmp_path, IN_THE_HANDLER), nodes="1") as nodes:
        nodes.start(0, KIT_SPEC=document.write(JobKeys(), RunFacts(exit_codes=codes, rendezvous_port=nodes.port)))
        nodes.until(0, "resuming")
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 143


FINISHES = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print('at work')
signal.sigwait([signal.SIGTERM])
{}
sys.exit(0)
"""


@pytest.mark.parametrize(
    "report",
    [
        "import kittrain; kittrain.mark_finished()",
        "open(os.environ['KIT_FINISHED_FILE'], 'w')",
    ],
)
def test_a_script_can_report_that_it_has_finished(tmp_path: Path, report: str) -> None:
    with Nodes(tmp_path, script(tmp_path, FINISHES.format(report)), nodes="1") as nodes:
        nodes.start(0)
        nodes.until(0, "at work")
        nodes.signal(0, signal.SIGTERM)
        assert nodes.wait(0) == 0
        assert nodes.end(0)["outcome"] == "done"


def test_it_has_finished_although_its_hub_takes_a_moment(tmp_path: Path) -> None:
    report = "open(os.environ['KIT_FINISHED_FILE'], 'w')"
    with Nodes(tmp_path, script(tmp_path, FINISHES.format(report)), nodes="1") as nodes:
        nodes.start(0)
        nodes.until(0, "at work")
        hub = hub_of(nodes.pid(0))
        os.kill(hub, signal.SIGSTOP)  # as on a busy machine
        nodes.signal(0, signal.SIGTERM)
        nodes.until_true(lambda: not nodes.ranks(0), "end of its rank")
        time.sleep(0.5)
        os.kill(hub, signal.SIGCONT)
        assert nodes.wait(0) == 0


def hub_of(agent: int) -> int:
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    return next(
        int(pid) for pid in children if b"kittrain.agent.rendezvous" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def test_training_that_ends_its_last_epoch_when_the_signal_arrives_is_done(tmp_path: Path) -> None:
    text = (
        "import os, signal, socket\n"
        "import torch\n"
        "from torch import nn\n"
        "from torch.utils.data import TensorDataset\n"
        "from kittrain import Data, Training, join\n"
        "def at_the_end(_epoch):\n"
        "    os.kill(os.getppid(), signal.SIGTERM)\n"  # the agent forwards it
        "    ours.recv(1)\n"  # it has arrived
        "    return {}\n"
        "ours, theirs = socket.socketpair()\n"
        "theirs.setblocking(False)\n"
        "signal.set_wakeup_fd(theirs.fileno())\n"
        "with join() as world:\n"
        "    model = nn.Linear(1, 1)\n"
        "    data = Data(TensorDataset(torch.rand(8, 1)), batch=8, seed=0)\n"
        "    sgd = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    training = Training(world, model, sgd, lambda m, b: m(b[0]).mean(), data, epochs=1, on_epoch=at_the_end)\n"
        "    training.fit()\n"
    )
    with Nodes(tmp_path, script(tmp_path, text), nodes="1", KIT_SNAPSHOT_DIR="") as nodes:
        nodes.start(0)
        assert nodes.wait(0) == 0, nodes.everything()
        assert nodes.end(0)["outcome"] == "done"


@pytest.mark.parametrize(
    ("leaving", "how"),
    [
        (0, {}),
        (1, {}),
        (1, {"ALONE": "1"}),
    ],
    ids=str,
)
def test_ranks_that_exit_with_0_when_one_node_drains_finish_on_neither(
    tmp_path: Path, leaving: int, how: dict[str, str]
) -> None:
    """The other node's ranks exit with 0 by agreement, without a drain request of their own, or lose their peers."""
    settings = {"DRAIN_CODE": "0", "PET_MAX_RESTARTS": "0"} | how
    with Nodes(tmp_path, str(SCRIPTS / "steps.py"), **settings) as nodes:
        nodes.start(0, 1)
        for index in (0, 1):
            nodes.until(index, "world of 2")
        nodes.signal(leaving, signal.SIGTERM)
        nodes.signal(leaving, signal.SIGTERM)  # a second signal has no effect
        assert nodes.wait(leaving) == 75
        nodes.start(leaving)
        for index in (0, 1):
            nodes.until(index, "world of 2", times=2)
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]


def test_ranks_that_stop_for_a_new_node_have_the_grace_period_to_save(tmp_path: Path) -> None:
    """They stop in agreement: a large model's last snapshot takes longer than ranks get that may hang."""
    with Nodes(tmp_path, script(tmp_path, SLOW_TO_SAVE), nodes="1:2") as nodes:
        nodes.start(0)
        nodes.until(0, "world of 1")
        nodes.start(1)
        nodes.until(0, "world of 2")
        assert (nodes.snapshots / "saved").exists(), nodes.everything()
        assert "rendezvous lost" not in nodes.everything()  # the new node waits here for as long as that takes
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]


def test_a_node_killed_during_its_drain_does_not_finish_the_others(tmp_path: Path) -> None:
    """Rank 0 has exited with 0 by agreement; rank 1 is still saving when its node is killed."""
    settings = {"DRAIN_CODE": "0", "PET_MAX_RESTARTS": "0", "SAVE_SECONDS": "600"}
    with Nodes(tmp_path, str(SCRIPTS / "steps.py"), **settings) as nodes:
        nodes.start(0, 1)
        for index in (0, 1):
            nodes.until(index, "world of 2")
        (rank,) = nodes.ranks(0)
        nodes.signal(1, signal.SIGTERM)
        nodes.until_true(lambda: not Path(f"/proc/{rank}").exists(), "end of rank 0")
        nodes.kill(1)
        nodes.start(1)
        for index in (0, 1):
            nodes.until(index, "world of 2", times=2)
        nodes.finish()
        assert [nodes.wait(0), nodes.wait(1)] == [0, 0]


@pytest.mark.parametrize(("early", "code"), [(0, 75), (1, 0)])
def test_ranks_that_exited_before_the_signal_are_done_unless_others_need_their_node(
    tmp_path: Path, early: int, code: int
) -> None:
    """Node 0 hosts the rendezvous, so it may only be done together with the others."""
    text = (
        "import os, time\n"
        "print('at work')\n"
        "enough = os.environ['KIT_SNAPSHOT_DIR'] + '/enough'\n"
        f"while int(os.environ['RANK']) != {early} and not os.path.exists(enough):\n"
        "    time.sleep(0.05)\n"
    )
    with Nodes(tmp_path, script(tmp_path, text)) as nodes:
        nodes.start(0, 1)
        nodes.until(1 - early, "at work")
        nodes.until(early, "at work")
        nodes.until_true(lambda: not nodes.ranks(early), "end of the rank")
        nodes.signal(early, signal.SIGTERM)
        assert nodes.wait(early) == code, nodes.everything()
        if code:
            nodes.start(early)
        nodes.finish()
        assert nodes.wait(1 - early) == 0
        assert nodes.wait(early) == 0 if code else True
