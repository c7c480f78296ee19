"""Situations of jobs that stand still."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, Situation, only

STANDING: Final = (
    Situation(
        name="a rank sleeps",
        script=GROUP + only(1, "time.sleep(600)"),
        cause=r"rank 1 sleeps.* at train\.py:\d+, rank 0 waits in barrier",
    ),
    Situation(
        name="a rank spins",
        script=DDP + "for i in range(9999):\n    while i == 60 and rank == 1:\n        pass\n    step()",
        cause=r"rank 1 is busy at train\.py:\d+, rank 0 waits in all_reduce of its backward pass",
    ),
    Situation(
        name="no group",
        script="import os, time\nif os.environ['RANK'] == '1':\n    time.sleep(600)\n" + GROUP,
        cause=r"rank 1 sleeps.* at train\.py:3, rank 0 waits in init_process_group",
    ),
    Situation(
        name="other collectives",
        script=GROUP + "dist.all_reduce(torch.ones(1)) if rank else dist.barrier()\ntime.sleep(600)",
        cause=r"waits in barrier.*waits in all_reduce|waits in all_reduce.*waits in barrier",
    ),
    Situation(
        name="a loader is stuck",
        script=DDP
        + """
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, index):
        return time.sleep(600 * (index == 30))  or torch.ones(1)
for batch in torch.utils.data.DataLoader(Items(), num_workers=1):
    step()
""",
        cause="ranks 0-1 wait for their data loader",
    ),
    Situation(
        name="a lock is taken twice",
        script=DDP + "import threading\nlock = threading.Lock()\nfor i in range(99):\n    step()\n"
        "    if i == 20 and rank == 1:\n        lock.acquire()\n        lock.acquire()",
        cause=r"rank 1 sleeps.* at train\.py:\d+, rank 0 waits in all_reduce of its backward pass",
    ),
    Situation(
        name="a rank is stopped",
        script=DDP + "import signal\nfor i in range(99):\n    step()\n"
        "    if i == 20 and rank == 1:\n        os.kill(os.getpid(), signal.SIGSTOP)",
        cause="rank 1 is stopped",
    ),
    Situation(
        name="each rank is the source of its broadcast",
        script=DDP + "for _ in range(20):\n    step()\ndist.broadcast(torch.ones(4), src=rank)\ndist.barrier()",
        cause=r"ranks 0-1 wait in broadcast of \[4\] float32 from themselves at .*each waits for others$",
        fix="name the same rank on all",
    ),
    Situation(
        name="a child process never ends",
        script=GROUP + "import subprocess\n" + only(0, "subprocess.run(['sleep', '600'])"),
        cause=r"rank 0 waits for a process at train\.py:8.*rank 1 waits in barrier",
    ),
    Situation(
        name="a thread has died and the queue stays empty",
        script=GROUP
        + """
import queue, threading
items = queue.Queue()
threading.Thread(target=lambda: 1 / 0).start()
items.get()
""",
        cause=r"ranks 0-1 wait for a queue at train\.py:10",
    ),
    Situation(
        name="one rank forgets the collective in an evaluation",
        script=DDP
        + "for i in range(30):\n    step()\nif rank == 0:\n    dist.all_reduce(torch.ones(1))\nfor i in range(30):\n"
        "    step()\ndist.barrier()\ntime.sleep(600)",
        cause=r"killed|different|waits in",
    ),
    Situation(
        name="waits for a file of the other rank",
        script=GROUP + "if rank == 1:\n    while not os.path.exists('ready'):\n        time.sleep(1)\ndist.barrier()",
        cause=r"rank 1 sleeps.* at train\.py:\d+, rank 0 waits in barrier",
    ),
    Situation(
        name="more ranks than the job has",
        script="import os\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo', rank=int(os.environ['RANK']), world_size=4)",
        cause="ranks 0-1 wait in init_process_group at train.py:3; rank 0 says: world_size 4 is not this process's "
        "WORLD_SIZE, which is 2",
        fix="leave out rank and world_size.*--nodes, --procs-per-node",
        first=(False, False),
    ),
    Situation(
        name="a process that feeds the rank is killed",
        script="import multiprocessing, os\ndef feed(items):\n    os.kill(os.getpid(), 9)\nif __name__ == '__main__':\n"
        "    items = multiprocessing.SimpleQueue()\n    multiprocessing.Process(target=feed, args=(items,)).start()\n"
        "    items.get()",
        cause=r"ranks 0-1 wait for a queue at train\.py:7; rank 0 says: a process that it started was killed by SIG",
    ),
    Situation(
        name="both ranks send first",
        script=GROUP
        + "mine, theirs = torch.ones(4), torch.zeros(4)\ndist.send(mine, 1 - rank)\ndist.recv(theirs, 1 - rank)",
        cause=r"ranks 0-1 wait in send at train\.py:\d+; each waits for others",
        fix=r"call recv\(\) before send\(\)",
    ),
    Situation(
        name="a send that one rank leaves out",
        script=GROUP + "other = torch.zeros(4)\nfor i in range(60):\n    if rank == 0:\n        dist.send(other, 1)\n"
        "        dist.recv(other, 1)\n    else:\n        dist.recv(other, 0)\n        if i != 30:\n"
        "            dist.send(other, 0)\n    time.sleep(0.05)",
        cause=r"rank 0 waits in recv at .*, rank 1 waits in recv at .*; each waits for others",
        fix="no rank sends what the others wait for",
    ),
)
