"""Situations of unusual kinds: errors that scripts make for themselves, and waits that are their own fault."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, Situation

ONCE: Final = ("--max-restarts", "0")
# Node 1's agent gets the signal of a preemption once.
_DRAINED: Final = (
    DDP
    + """
first = not os.path.exists("drained")
if rank == 1:
    open("drained", "w").close()
for i in range(4000):
    step()
    if i == 100 and rank == 1 and first:
        os.kill(os.getppid(), signal.SIGTERM)
"""
)
_SAMPLERS: Final = (
    DDP
    + """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
data, held_out = TensorDataset(torch.randn(240, 4)), TensorDataset(torch.randn(40, 4))
sampler, checks = DistributedSampler(data, {given}), DistributedSampler(held_out)
for epoch in range(3):
    {epoch}
    for number, _ in enumerate(DataLoader(data, batch_size=12, sampler=sampler)):
        if number < 10:
            step()
        if number == 5:
            model.eval()
            with torch.no_grad():
                total = sum(model(batch).sum() for batch, in DataLoader(held_out, batch_size=4, sampler=checks))
            model.train()
"""
)
ODD: Final = (
    Situation(
        name="an interrupt that the script raises",
        script=DDP
        + "for i in range(400):\n    step()\n    if i == 40 and rank == 1:\n        raise KeyboardInterrupt\n",
        cause=r"rank 1: KeyboardInterrupt: at train.py:\d+: raise KeyboardInterrupt",
        fix=r"train\.py:\d+",
        options=ONCE,
    ),
    Situation(
        name="ignores the signal to stop",
        script="import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _DRAINED,
        cause="^rank 1 ignores SIGTERM, and was killed after",
        fix="save and exit",
        options=("--set", "policy.gracePeriod=10s"),
    ),
    Situation(
        name="prints that it is to stop and goes on",
        script="import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('stopping', flush=True))\n" + _DRAINED,
        cause=r"^rank 1 took \d+ more steps after SIGTERM, and was killed after",
        fix="look in each step whether its handler was called",
        options=("--set", "policy.gracePeriod=10s"),
    ),
    Situation(
        name="warnings that are errors",
        script="import warnings\nwarnings.simplefilter('error')\n"
        + DDP
        + "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\nscheduler.step()\nstep()\n",
        cause="UserWarning: Detected call of `lr_scheduler.step",
        fix="filterwarnings",
        options=ONCE,
    ),
    Situation(
        name="a thread that ends the process",
        script=DDP
        + """
import threading
def watch():
    time.sleep(2)
    print("watchdog: the license server is gone", flush=True)
    os._exit(1)
if rank == 1:
    threading.Thread(target=watch, daemon=True).start()
while True:
    step()
""",
        cause="rank 1: exit code 1: watchdog: the license server is gone",
        options=ONCE,
    ),
    Situation(
        name="a library that ends the process",
        script=DDP
        + """
import ctypes
for i in range(400):
    step()
    if i == 30 and rank == 0:
        said = b"mylib.c:88: error: cannot open calibration table v3\\n"
        ctypes.CDLL(None).write(2, said, len(said))
        ctypes.CDLL(None).exit(1)
""",
        cause="rank 0: exit code 1: mylib.c:88: error: cannot open calibration table v3",
        options=ONCE,
    ),
    Situation(
        name="a checkpoint into a pipe that nobody reads",
        script=DDP
        + """
os.mkfifo(f"checkpoint-{rank}")
for i in range(400):
    step()
    if i == 40 and rank == 0:
        torch.save(model.state_dict(), "checkpoint-0")
""",
        cause=r"no step for .*: rank 0 sleeps.* at train.py:\d+, rank 1 waits in all_reduce of its backward pass",
    ),
    Situation(
        name="an exit handler that waits",
        script=DDP
        + "import atexit\natexit.register(time.sleep, 3600 * rank)\nfor i in range(40):\n    step()\n"
        + "dist.destroy_process_group()\n",
        cause="no step for .*: node 0 has ended, rank 1 has ended its script, but not its exit handler",
    ),
    Situation(
        name="a server that nobody is at",
        script="import socket, time, torch\nwhile True:\n    try:\n"
        "        socket.create_connection(('192.0.2.7', 9), timeout=30)\n"
        "    except OSError:\n        time.sleep(0.1)\n",
        cause=r"no step for .*: ranks 0-1 (?:try to reach a server|sleep) at train.py:\d",
    ),
    Situation(
        name="healthy download that is slow",
        script="""
import http.server, socketserver, threading, time, urllib.request
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(100 << 10))
        self.end_headers()
        for _ in range(100):
            self.wfile.write(bytes(1 << 10))
            time.sleep(0.25)
    def log_message(self, *_):
        pass
server = socketserver.TCPServer(("127.0.0.1", 0), Slow)
threading.Thread(target=server.serve_forever, daemon=True).start()
body = urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/").read()
"""
        + DDP
        + "for i in range(50):\n    step()\n",
        healthy=True,
    ),
    Situation(
        name="a learning rate of zero",
        script=DDP + "for group in optimizer.param_groups:\n    group['lr'] = 0\nfor i in range(9):\n    step()",
        cause="rank 0: the optimizer has changed nothing: its learning rate was 0 at all 9 steps",
    ),
    Situation(
        name="an optimizer of another model",
        script=DDP + "other = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(other.parameters(), 0.1)\nfor i in range(9):\n    step()",
        cause="rank 0: the optimizer has changed nothing: none of its parameters had a gradient at all 9 steps",
    ),
    Situation(
        name="a loss that stays the same",
        script=DDP + "for i in range(12):\n    step()\n    print('step', i, 'loss', 0.6931)",
        cause=r"rank 0: the loss was 0\.6931 in the last 12 lines that show it",
    ),
    Situation(
        name="samplers of different seeds",
        script=_SAMPLERS.format(given="seed=rank", epoch="sampler.set_epoch(epoch)"),
        cause="^the DistributedSampler of rank 0 has seed=0, that of rank 1 seed=1: they do not divide the data$",
        fix="same seed",
    ),
    Situation(
        name="samplers of one part",
        script=_SAMPLERS.format(given="rank=0, num_replicas=2", epoch="sampler.set_epoch(epoch)"),
        cause="^the DistributedSampler of rank 0 has rank=0, that of rank 1 rank=0: they do not divide the data$",
        fix="each its own rank",
    ),
    Situation(
        name="samplers of data sets of different sizes",
        script=_SAMPLERS.replace("240", "240 + 20 * rank").format(given="drop_last=True", epoch="pass"),
        cause="^the DistributedSampler of rank 0 has 240 samples, that of rank 1 260: they do not divide the data$",
        fix="same data set",
    ),
    Situation(
        name="epochs of one order",
        script=_SAMPLERS.format(given="seed=7", epoch="pass"),
        cause="^rank 0: the DistributedSampler that shuffles has had the same order in all 3 passes",
        fix="set_epoch",
    ),
    Situation(
        name="healthy samplers with an evaluation in each epoch",
        script=_SAMPLERS.format(given="seed=7", epoch="sampler.set_epoch(epoch)"),
        healthy=True,
    ),
)
