"""Situations of jobs that end with an error: scripts, files, libraries, resources."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation, only

RUN: Final = """
import torch
from kittrain import Run, join
with join(seed=0) as world:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(SIZE, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Run(world, model=model, optimizer=optimizer) as run:
        for step in run.steps(STEPS):
            optimizer.zero_grad()
            loss = model(torch.randn(2, SIZE)).sum()
            loss.backward()
            optimizer.step()
            run.step(loss)
"""
SPAWN: Final = """
import sys, torch.multiprocessing as mp
def train(index):
    raise ValueError("bad shard")
if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""

FAILURES: Final = (
    Situation(
        name="exit code",
        script=GROUP + only(1, "sys.exit(print('no config: /data/c.yaml', file=sys.stderr) or 3)"),
        cause=r"rank 1: exit code 3: no config: /data/c\.yaml",
        options=ONCE,
    ),
    Situation(
        name="exception on one rank",
        script=GROUP + only(1, "raise ValueError('bad shard')"),
        cause=r"rank 1: ValueError: bad shard",
        fix=r"train\.py:\d+",
        options=ONCE,
    ),
    Situation(
        name="missing module", script="import flash_attn", cause="No module named 'flash_attn'", fix="--requirements"
    ),
    Situation(
        name="missing file",
        script="open('/data/cfg.yaml')",
        cause="no /data/cfg.yaml",
        fix="create it|path",
        options=ONCE,
    ),
    Situation(
        name="no network interface",
        script=GROUP,
        cause="no network interface eth99",
        fix="ip link",
        options=("--env", "GLOO_SOCKET_IFNAME=eth99", *ONCE),
    ),
    Situation(
        name="different shapes",
        script=GROUP + "dist.all_reduce(torch.ones(10 + 1000 * rank))",
        cause="different shapes",
        fix="same on all ranks",
        options=ONCE,
    ),
    Situation(
        name="tiny tensors of different shapes",
        script=GROUP + "dist.all_reduce(torch.ones(1 + rank))",
        cause=r"all_reduce of \[1\] float32.*all_reduce of \[2\] float32",
    ),
    Situation(
        name="another shape in the last step",
        script=DDP + "for _ in range(60): step()\ndist.all_reduce(torch.ones(4 - rank))",
        cause=r"rank \d called all_reduce of \[\d\] float32, where rank \d called all_reduce of \[\d\] float32",
        fix="same shape",
        options=ONCE,
    ),
    Situation(name="no memory", script="raise MemoryError", cause="MemoryError", fix="use less", options=ONCE),
    Situation(
        name="failed assertion",
        script="size = 3\nassert size % 2 == 0, 'odd size'",
        cause="AssertionError: odd size",
        fix=r"train\.py:2",
        options=ONCE,
    ),
    Situation(
        name="json that is none",
        script="import json\njson.loads('{')",
        cause=r"JSONDecodeError.* at train\.py:2",
        fix="what that line reads",
        options=ONCE,
    ),
    Situation(
        name="wrong shape of a layer",
        script="import torch\ntorch.nn.Linear(4, 4)(torch.ones(2, 3))",
        cause="shapes cannot be multiplied",
        fix=r"train\.py:2",
        options=ONCE,
    ),
    Situation(
        name="killed by a signal",
        script=GROUP + only(0, "os.kill(os.getpid(), 9)"),
        cause="killed by SIGKILL",
        fix="kernel log",
        options=ONCE,
    ),
    Situation(
        name="refused arguments",
        script="import argparse\nargparse.ArgumentParser().parse_args(['--epochs', '3'])",
        cause="unrecognized arguments: --epochs 3",
        fix="arguments",
    ),
    Situation(
        name="left early",
        script=GROUP + "if rank == 0:\n    sys.exit()\ndist.all_reduce(torch.ones(1))",
        cause="rank 0 ended with exit code 0",
        fix="same number of steps",
        options=ONCE,
    ),
    Situation(
        name="the true line is the last but one",
        script="import sys\nprint('error: config file missing: /data/c.yaml', file=sys.stderr)\n"
        "print('cleaning up temporary files')\nsys.exit(3)",
        cause="exit code 3.*config file missing",
        options=ONCE,
    ),
    Situation(
        name="hydra",
        script="""
import sys
print('''Error executing job with overrides: ['lr=x']
Traceback (most recent call last):
  File "/src/train.py", line 9, in main
    fit(cfg)
RuntimeError: bad data

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.''', file=sys.stderr)
sys.exit(1)
""",
        cause="RuntimeError: bad data",
        options=ONCE,
    ),
    Situation(
        name="sys exit with a message",
        script="import sys\nsys.exit('the folder data is empty')",
        cause="the folder data is empty",
        options=ONCE,
    ),
    Situation(
        name="chained exception",
        script="try:\n    {}['lr']\nexcept KeyError as error:\n    raise RuntimeError('no learning rate') from error",
        cause="RuntimeError: no learning rate",
        fix=r"train\.py:4",
        options=ONCE,
    ),
    Situation(
        name="segmentation fault",
        script="import ctypes\ndef native():\n    ctypes.string_at(0)\nnative()",
        cause=r"SIGSEGV at train\.py:3",
        fix="librar",
        options=ONCE,
    ),
    Situation(
        name="abort in native code",
        script="import os\nos.abort()",
        cause=r"SIGABRT at train\.py:2",
        fix="librar",
        options=ONCE,
    ),
    Situation(
        name="an allocation that is too large",
        script="import torch\ntorch.empty(10**15)",
        cause="allocate 4000000000000000 bytes",
        fix="use less|smaller",
        options=ONCE,
    ),
    Situation(
        name="truncated mapping",
        script="import mmap, os\nwith open('m', 'w+b') as file:\n    file.truncate(8192)\n"
        "    data = mmap.mmap(file.fileno(), 8192)\n    file.truncate(0)\n    data[5000]",
        cause="SIGBUS",
        fix="truncated",
        options=ONCE,
    ),
    Situation(
        name="full disk",
        script="with open('/dev/full', 'w') as file:\n    file.write('x')",
        cause="No space left on device",
        fix="free space",
        options=ONCE,
    ),
    Situation(
        name="file larger than its limit",
        script="import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))\n"
        + RUN.replace("SIZE", "10**6").replace("STEPS", "9"),
        cause="File too large",
        fix="ulimit -f",
        options=ONCE,
    ),
    Situation(
        name="read only file system",
        script="open('/sys/kernel/out.txt', 'w')",
        cause=r"/sys/kernel/out\.txt",
        fix="^(?!.*readOnlyRoot).*(another folder|owns|write to)",
        options=ONCE,
    ),
    Situation(
        name="a folder for a file",
        script="import os\nos.makedirs('out', exist_ok=True)\nopen('out')",
        cause="IsADirectoryError.*'out'",
        fix=r"train\.py:3|folder",
        options=ONCE,
    ),
    Situation(
        name="a relative file is missing",
        script="open('data/train.csv')",
        cause="data/train.csv",
        fix="send|path|folder",
        options=ONCE,
    ),
    Situation(
        name="a program is missing",
        script="import subprocess\nsubprocess.run(['nvidia-smi-x', '-L'], check=True)",
        cause="nvidia-smi-x",
        fix="install",
        options=ONCE,
    ),
    Situation(
        name="a command fails",
        script="import subprocess\nsubprocess.run(['ls', '/nosuch'], check=True)",
        cause="ls: cannot access|'ls', '/nosuch'.*exit status 2",
        fix="last lines|output|message",
        options=ONCE,
    ),
    Situation(name="unknown name", script="print(lr)", cause="NameError: name 'lr'", fix="define lr .*train.py:1"),
    Situation(
        name="syntax error",
        script="def f(:\n    pass",
        cause="SyntaxError",
        fix="fix the script",
        options=("--no-checks",),
    ),
    Situation(
        name="mixed tabs",
        script="if True:\n    a = 1\n  b = 2",
        cause="IndentationError",
        fix="fix the script",
        options=("--no-checks",),
    ),
    Situation(
        name="unknown attribute",
        script="import torch\ntorch.nn.Linear(2, 2).weights",
        cause="AttributeError: 'Linear' object has no attribute 'weights'",
        fix=r"train\.py:2",
        options=ONCE,
    ),
    Situation(
        name="key missing in a loader worker",
        script=GROUP
        + """
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 9
    def __getitem__(self, index):
        return {"image": 1}["label"]
next(iter(torch.utils.data.DataLoader(Items(), num_workers=1)))
""",
        cause="KeyError: 'label'.*worker",
        fix=r"train\.py:11",
        options=ONCE,
    ),
    Situation(
        name="loader worker is killed",
        script=GROUP
        + """
import signal
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 9
    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)
next(iter(torch.utils.data.DataLoader(Items(), num_workers=1)))
""",
        cause="DataLoader worker was killed by signal: Killed",
        fix="fewer data loader workers",
        options=ONCE,
    ),
    Situation(
        name="no gpu",
        script="import torch\ntorch.ones(1).cuda()",
        cause="NVIDIA driver|not compiled with CUDA",
        fix="gpus-per-node|device.*cpu",
    ),
    Situation(
        name="nccl without a gpu",
        script="import torch.distributed as dist\ndist.init_process_group('nccl')",
        cause="CUDA|GPU",
        fix="gloo",
    ),
    Situation(
        name="gpus that are not there",
        script="print(1)",
        cause="GPU",
        fix="--gpus-per-node|gpusPerNode",
        options=("--gpus-per-node", "4", "--no-checks"),
    ),
    Situation(
        name="requirements without wheels",
        script="print(1)",
        cause="has no wheels",
        fix="pip wheel",
        options=("--requirements", "req.txt", "--no-index", "--find-links", "."),
        files={"req.txt": "no-such-package-xyz==1.0\n"},
    ),
    Situation(
        name="snapshot of another model",
        before=RUN.replace("SIZE", "4").replace("STEPS", "5"),
        script=RUN.replace("SIZE", "6").replace("STEPS", "9"),
        cause="another model",
        fix="--name|--from-scratch",
        options=ONCE,
    ),
    Situation(
        name="loss is not finite",
        script=RUN.replace("SIZE", "4")
        .replace("STEPS", "4000")
        .replace("loss = ", "loss = (step >= 9) * float('nan') + "),
        cause="loss is nan since step",
        fix="learning rate|clip",
        options=ONCE,
    ),
    Situation(
        name="parameters are not finite",
        script=DDP.replace("model(torch.randn(2, 4)).sum()", "(scale * model(torch.randn(2, 4)).sum())")
        + "for scale in (*[1] * 9, *[float('nan')] * 9): step()",
        cause="the parameters are not finite",
        fix="learning rate|clip",
        options=ONCE,
    ),
    Situation(
        name="too many open files",
        script="import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "files = [open('/dev/null') for _ in range(99)]",
        cause="Too many open files",
        fix="ulimit -n",
        options=ONCE,
    ),
    Situation(
        name="error after privileges were dropped",
        script="import os\nos.setgid(65534)\nos.setuid(65534)\nraise ValueError('bad shard')",
        cause="ValueError: bad shard",
        options=ONCE,
    ),
    Situation(
        name="lone surrogate",
        script="raise ValueError('bad name \\udcff')",
        cause="ValueError: bad name",
        fix=r"train\.py:1",
        options=ONCE,
    ),
    Situation(
        name="a megabyte in one line",
        script="raise ValueError('bad ' + 'x' * 10**6)",
        cause="ValueError: bad xxx",
        fix=r"train\.py:1",
        options=ONCE,
    ),
    Situation(
        name="endless recursion",
        script="def f(n):\n    return f(n + 1)\nf(0)",
        cause="RecursionError: maximum recursion",
        fix=r"train\.py:2",
        options=ONCE,
    ),
    Situation(
        name="a spawned process fails",
        script=SPAWN,
        cause="ValueError: bad shard",
        fix=r"train\.py:4",
        options=ONCE,
    ),
    Situation(
        name="port is taken",
        script="import socket, time\ns = socket.socket()\ns.bind(('127.0.0.1', 45611))\ns.listen()\ntime.sleep(3)",
        cause="Address already in use",
        fix="LOCAL_RANK",
        options=ONCE,
    ),
    Situation(
        name="collective without a group",
        script="import torch, torch.distributed as dist\ndist.all_reduce(torch.ones(1))",
        cause="[Pp]rocess group has not been initialized",
        fix="init_process_group",
        options=ONCE,
    ),
    Situation(
        name="checkpoint of another model",
        script="import torch\ntorch.save(torch.nn.Linear(2, 2).state_dict(), 'ck.pt')\n"
        "torch.nn.Sequential(torch.nn.Linear(2, 2)).load_state_dict(torch.load('ck.pt'))",
        cause="state_dict.*(Missing|Unexpected) key",
        fix="model",
        options=ONCE,
    ),
    Situation(
        name="checkpoint with more than weights",
        script="import torch\nclass Config:\n    pass\ntorch.save(Config(), 'ck.pt')\ntorch.load('ck.pt')",
        cause="Weights only load failed|weights_only",
        fix="weights_only=False|add_safe_globals",
        options=ONCE,
    ),
    Situation(
        name="checkpoint is cut short",
        script="import os, torch\ntorch.save(torch.ones(99), 'ck.pt')\nos.truncate('ck.pt', 300)\ntorch.load('ck.pt')",
        cause="central directory|zip archive|incomplete|cut short",
        fix="earlier|other|incomplete|again",
        options=ONCE,
    ),
    Situation(
        name="checkpoint of a gpu",
        script="import torch\ntorch.serialization.location_tag = lambda storage: 'cuda:0'\n"
        "torch.save(torch.ones(9), 'ck.pt')\ntorch.load('ck.pt')",
        cause="CUDA device",
        fix="map_location",
        options=ONCE,
    ),
    Situation(
        name="parameters without a gradient",
        script=GROUP
        + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.a(x)
model = torch.nn.parallel.DistributedDataParallel(Net())
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
""",
        cause="some of the model.s parameters no gradient",
        fix="find_unused_parameters=True",
        options=ONCE,
    ),
    Situation(
        name="models differ between ranks",
        script=GROUP + "layers = [torch.nn.Linear(4, 4)] + [torch.nn.Linear(4, 5)] * rank\n"
        "torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))",
        cause="(same|different).*(model|parameters|shape)|[Pp]arams",
        fix="same (model|parameters)",
        options=ONCE,
    ),
    Situation(
        name="changed in place",
        script="import torch\nx = torch.ones(3, requires_grad=True)\ny = torch.sigmoid(x)\ny += 1\ny.sum().backward()",
        cause="inplace operation",
        fix="set_detect_anomaly",
        options=ONCE,
    ),
    Situation(
        name="backward twice",
        script="import torch\nx = torch.ones(3, requires_grad=True)\ny = torch.sigmoid(x).sum()\n"
        "y.backward()\ny.backward()",
        cause="backward through the graph a second time",
        fix="detach|retain_graph",
        options=ONCE,
    ),
    Situation(
        name="label out of range",
        script="import torch\ntorch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([1, 7]))",
        cause="Target 7 is out of bounds",
        fix="classes|labels",
        options=ONCE,
    ),
    Situation(
        name="loader cannot pickle",
        script=GROUP
        + """
if __name__ == "__main__":
    items = torch.utils.data.TensorDataset(torch.ones(4))
    spawned = {"num_workers": 1, "multiprocessing_context": "spawn"}
    next(iter(torch.utils.data.DataLoader(items, collate_fn=lambda x: x, **spawned)))
""",
        cause="[Pp]ickle.*lambda",
        fix="module|top level|lambda",
        options=ONCE,
    ),
    Situation(
        name="spawn without a main guard",
        script=GROUP
        + """
items = torch.utils.data.TensorDataset(torch.ones(4))
next(iter(torch.utils.data.DataLoader(items, num_workers=1, multiprocessing_context="spawn")))
""",
        cause="bootstrapping phase|exited unexpectedly|__main__",
        fix="__main__",
        options=ONCE,
    ),
    Situation(
        name="service refuses the connection",
        script="import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/')",
        cause="URLError.*Connection refused",
        fix="service|address|server",
        options=ONCE,
    ),
    Situation(
        name="host name is unknown",
        script="import urllib.request\nurllib.request.urlopen('http://nosuch.invalid/')",
        cause="(Name or service not known|name resolution|No address)",
        fix="name|DNS",
        options=ONCE,
    ),
    Situation(
        name="hub is not reachable",
        script="raise OSError(\"We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find "
        'in the cached files.\\nCheck your internet connection or see how to run the library in offline mode.")',
        cause="couldn't connect to 'https://huggingface.co'",
        fix="HF_HUB_OFFLINE|HF_HOME|proxy",
        options=ONCE,
    ),
    Situation(
        name="gated model",
        script="raise OSError('You are trying to access a gated repo.\\nMake sure to have access to it at "
        "https://huggingface.co/m/x.\\n401 Client Error.')",
        cause="gated repo",
        fix="HF_TOKEN",
        options=ONCE,
    ),
    Situation(
        name="no key for wandb",
        script="class UsageError(Exception):\n    pass\n"
        "raise UsageError('api_key not configured (no-tty). call wandb.login(key=[your_api_key])')",
        cause="api_key not configured",
        fix="WANDB_API_KEY|WANDB_MODE",
        options=ONCE,
    ),
    Situation(
        name="numpy of another version",
        script="raise ValueError('numpy.dtype size changed, may indicate binary incompatibility. Expected 96, "
        "got 88 from PyObject')",
        cause="numpy.dtype size changed",
        fix="numpy",
        options=ONCE,
    ),
    Situation(
        name="system library is missing",
        script="import ctypes\nctypes.CDLL('libnosuch.so.1')",
        cause=r"libnosuch\.so\.1",
        fix="install|image",
        options=ONCE,
    ),
    Situation(
        name="a peer is too slow for the timeout",
        script=GROUP.replace('("gloo")', '("gloo", timeout=__import__("datetime").timedelta(seconds=4))')
        + "if rank == 1:\n    time.sleep(30)\ndist.barrier()",
        cause="rank 1 sleeps|[Tt]imed out",
        fix="timeout",
        options=ONCE,
    ),
    Situation(
        name="ranks have unequal batches",
        script=DDP + "for _ in range(50 + 10 * rank):\n    step()",
        cause="rank 0 ended with exit code 0.*rank 1 lost it",
        fix="same number of steps",
        options=ONCE,
    ),
    Situation(
        name="asks a question",
        script="input('overwrite the checkpoint? [y/n] ')",
        cause="EOFError",
        fix="terminal|keyboard|ask",
        options=ONCE,
    ),
    Situation(
        name="exit without a word",
        script="import os\nos._exit(7)",
        cause="rank [01]: exit code 7$",
        options=ONCE,
    ),
    Situation(
        name="empty data set",
        script="losses = []\nprint(sum(losses) / len(losses))",
        cause="ZeroDivisionError: division by zero",
        fix=r"train\.py:2",
        options=ONCE,
    ),
    Situation(
        name="a flood of warnings before the error",
        script="for i in range(20000):\n    print('warning: slow tokenizer', i)\nraise ValueError('bad shard')",
        cause="ValueError: bad shard",
        fix=r"train\.py:3",
        options=ONCE,
    ),
    Situation(
        name="no compiler for torch compile",
        script="import os\nos.environ['PATH'] = '/nonexistent'\nos.environ['CXX'] = 'nosuch-g++'\nimport torch\n"
        "torch.compile(lambda x: x.sin() + 1)(torch.ones(9))",
        cause="C\\+\\+ compiler|C compiler",
        fix="compiler",
        options=ONCE,
    ),
    Situation(
        name="interrupted from outside",
        script="import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)",
        cause="KeyboardInterrupt",
        fix="SIGINT",
        options=ONCE,
    ),
    Situation(
        name="retried while the cause is known",
        script="raise ValueError('bad shard')",
        cause="rank [01]: ValueError: bad shard",
        fix=r"train\.py:1",
        options=("--max-restarts", "3"),
    ),
)
