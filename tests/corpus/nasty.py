"""Situations that were looked for where no rule was. What has to be told of each was written down beforehand."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation, only

NASTY: Final = (
    Situation(
        name="no room for temporary files",
        script="import resource, signal, tempfile\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\ntempfile.mkstemp()",
        cause="No usable temporary directory",
        fix="TMPDIR|space",
        options=ONCE,
    ),
    Situation(
        name="a rank closes its output before it fails",
        script=GROUP + only(1, "os.close(1); os.close(2); raise ValueError('bad shard')"),
        cause="rank 1: ValueError: bad shard",
        fix=r"train\.py:\d+",
        options=ONCE,
    ),
    Situation(
        name="too many processes",
        script="import os, resource, subprocess\nresource.setrlimit(resource.RLIMIT_NPROC, (9, 9))\nos.setuid(54321)\n"
        "running = [subprocess.Popen(['sleep', '600']) for _ in range(20)]",
        cause="Resource temporarily unavailable",
        fix="processes|ulimit -u|pids",
        options=ONCE,
    ),
    Situation(
        name="too many threads",
        script="import threading, time\nclass Thread(threading.Thread):\n    def start(self):\n"
        '        raise RuntimeError("can\'t start new thread")\nThread().start()',
        cause="can't start new thread",
        fix="processes|threads|ulimit -u|pids",
        options=ONCE,
    ),
    Situation(
        name="a rank ends itself in the middle",
        script=DDP + "for i in range(99):\n    step()\n    if i == 30 and rank == 1:\n        os._exit(0)",
        cause=r"rank 1 ended with exit code 0.*rank 0 lost it",
        fix="same number of steps",
        options=ONCE,
    ),
    Situation(
        name="a worker of the loader is stopped",
        script=DDP
        + """
import signal
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, index):
        if index == 30 and rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.ones(1)
for batch in torch.utils.data.DataLoader(Items(), num_workers=1):
    step()
""",
        cause="rank 1 waits for its data loader",
    ),
    Situation(
        name="a script that becomes a daemon",
        script="import os, time\nif os.fork():\n    os._exit(0)\nos.setsid()\ntime.sleep(600)",
        cause="gone on in the background",
        fix="foreground|wait|background",
    ),
    Situation(
        name="a checkpoint that is a pointer of git lfs",
        script="import torch\ntorch.load('model.pt')",
        files={"model.pt": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"},
        cause="git lfs",
        fix="git lfs pull",
        options=("--workdir", ".", *ONCE),
    ),
    Situation(
        name="a compressed file is cut short",
        script="import gzip\nopen('x.gz', 'wb').write(gzip.compress(b'x' * 9999)[:20])\ngzip.open('x.gz').read()",
        cause="EOFError: Compressed file ended before",
        fix="again|damaged|complete",
        options=ONCE,
    ),
    Situation(
        name="a pickle is empty",
        script="import pickle\nopen('x.pkl', 'wb').close()\npickle.load(open('x.pkl', 'rb'))",
        cause="EOFError: Ran out of input",
        fix="empty|damaged|complete",
        options=ONCE,
    ),
    Situation(
        name="healthy and names another master address",
        script="import os\nos.environ['MASTER_ADDR'] = 'nosuch.invalid'\n"
        + GROUP
        + "assert dist.get_world_size() == 2",
        healthy=True,
    ),
    Situation(
        name="a device that torch does not know",
        script="import torch\ntorch.ones(2, device='gpu')",
        cause="no device gpu",
        fix="'cuda'",
        options=ONCE,
    ),
    Situation(
        name="a checkpoint of a wrapped model",
        script="import torch\ntorch.save({'module.weight': torch.ones(2, 2), 'module.bias': torch.ones(2)}, 'x.pt')\n"
        "torch.nn.Linear(2, 2).load_state_dict(torch.load('x.pt'))",
        cause=r"loading state_dict for Linear",
        fix=r"module\.",
        options=ONCE,
    ),
    Situation(
        name="torch without cuda",
        script="raise AssertionError('Torch not compiled with CUDA enabled')",
        cause="torch was built without CUDA",
        fix="cpu|GPU build|built with CUDA|index",
        options=ONCE,
    ),
    Situation(
        name="world size of another machine",
        script=GROUP.replace('("gloo")', '("gloo", rank=rank, world_size=4)'),
        cause="world_size|2 of 4|init_process_group",
    ),
    Situation(
        name="variables are cleared",
        script="import os\nos.environ.clear()\nimport torch.distributed as dist\ndist.init_process_group('gloo')",
        cause="environment variable RANK expected",
        fix="environment|variable",
        options=ONCE,
    ),
    Situation(
        name="a file with the name of a library",
        script="from dataclasses_json import dataclass_json",
        files={"dataclasses_json.py": "SEED = 3\n"},
        cause="cannot import name 'dataclass_json' from 'dataclasses_json'",
        fix="rename",
        options=("--workdir", ".", *ONCE),
    ),
    Situation(
        name="healthy next to a file with the name of a module",
        script="import random\nprint(random.random())",
        files={"random.py": "SEED = 3\n", "calendar.py": "SEED = 3\n"},
        options=("--workdir", "."),
        healthy=True,
    ),
    Situation(
        name="kills its agent",
        script=GROUP + "time.sleep(2)\n" + only(0, "os.kill(os.getppid(), 9)") + "time.sleep(600)",
        cause="killed|again and again|agent",
    ),
    Situation(
        name="certificate is not trusted",
        script="raise OSError('[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in "
        "certificate chain (_ssl.c:1000)')",
        cause="CERTIFICATE_VERIFY_FAILED",
        fix="SSL_CERT_FILE|REQUESTS_CA_BUNDLE|certificate",
        options=ONCE,
    ),
    Situation(
        name="two data types",
        script="import torch\ntorch.nn.Linear(2, 2)(torch.ones(2, 2, dtype=torch.float64))",
        cause="dtype|same dtype",
        fix=r"\.float\(\)|autocast",
        options=ONCE,
    ),
    Situation(
        name="healthy and stopped for a while",
        script=DDP + "import signal, subprocess\nfor i in range(60):\n    step()\n    if i == 20 and rank == 1:\n"
        "        subprocess.Popen(['sh', '-c', f'sleep 4; kill -CONT {os.getpid()}'])\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)",
        healthy=True,
    ),
    Situation(
        name="healthy and closes its output",
        script=DDP + "os.close(1)\nos.close(2)\nfor _ in range(60):\n    step()\ndist.barrier()\n"
        "dist.destroy_process_group()",
        healthy=True,
    ),
    Situation(
        name="healthy with a helper that it leaves",
        script=GROUP + "import subprocess\nif rank == 0:\n    subprocess.Popen(['sleep', '5'])\ndist.barrier()\n"
        "dist.destroy_process_group()",
        healthy=True,
    ),
    # Made up once the rules for those above were written.
    Situation(
        name="environment variable of the script is missing",
        script="import os\nroot = os.environ['DATA_ROOT']",
        cause="the variable DATA_ROOT is not set",
        fix="--env DATA_ROOT",
        options=ONCE,
    ),
    Situation(
        name="interpreter of another architecture",
        script="import ctypes\nopen('x.so','wb').write(b'\\x7fELF' + b'\\0' * 60)\nctypes.CDLL('./x.so')",
        cause="invalid ELF header|wrong ELF class|cannot open shared object|file too short|ELF",
        fix="build|architecture|processor|damaged",
        options=ONCE,
    ),
    Situation(
        name="batch norm with one sample",
        script="import torch\ntorch.nn.BatchNorm1d(3)(torch.ones(1, 3))",
        cause="Expected more than 1 value per channel",
        fix="batch|drop_last",
        options=ONCE,
    ),
    Situation(
        name="loader of an empty data set",
        script=(
            "import torch\nlist(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(0, "
            "2)), shuffle=True))"
        ),
        cause="num_samples should be a positive integer",
        fix="empty|path|data",
        options=ONCE,
    ),
    Situation(
        name="loss without a graph",
        script="import torch\ntorch.ones(1).sum().backward()",
        cause="does not require grad",
        fix="requires_grad|detach|no_grad",
        options=ONCE,
    ),
    Situation(
        name="ranks have unequal data sets",
        script=DDP + "data = torch.utils.data.TensorDataset(torch.ones(5 + 3 * rank, 4))\nfor _ in range(20):\n"
        "    for batch in torch.utils.data.DataLoader(data):\n        step()",
        cause="ended with exit code 0|lost it",
        fix="same number of steps",
        options=ONCE,
    ),
    Situation(
        name="hydra config is missing",
        script=(
            "class MissingConfigException(Exception): pass\n"
            "raise MissingConfigException(\"Cannot find primary config 'train'. Check that it's in your "
            'config search path.")'
        ),
        cause="Cannot find primary config 'train'",
        fix="workdir|config",
        options=ONCE,
    ),
    Situation(
        name="yaml that is none",
        script=(
            "class ScannerError(Exception): pass\n"
            "raise ScannerError('mapping values are not allowed here\\n"
            '  in "config.yaml", line 3, column 8\')'
        ),
        cause="mapping values are not allowed here.*line 3",
        fix=r"line 3|YAML|config\.yaml|train\.py:\d",
        options=ONCE,
    ),
    Situation(
        name="too many requests",
        script=(
            "class HfHubHTTPError(Exception): pass\n"
            "raise HfHubHTTPError('429 Client Error: Too Many Requests for url: "
            "https://huggingface.co/api/models/x')"
        ),
        cause="429|Too Many Requests",
        fix="once|token|HF_TOKEN|wait|volume",
        options=ONCE,
    ),
    Situation(
        name="time limit of its own",
        script="import signal, time\nsignal.alarm(3)\ntime.sleep(60)",
        cause="SIGALRM",
        fix="alarm|timer|signal",
        options=ONCE,
    ),
    Situation(
        name="processor time is limited",
        script="import resource\nresource.setrlimit(resource.RLIMIT_CPU, (8, 9))\nwhile True: pass",
        cause="SIGXCPU|processor time",
        fix="ulimit -t|processor time|RLIMIT_CPU",
        options=ONCE,
    ),
    Situation(
        name="tensors on two devices",
        script=(
            "raise RuntimeError('Expected all tensors to be on the same device, but found at least two "
            "devices, cuda:0 and cpu!')"
        ),
        cause="same device",
        fix=r"\.to\(|device",
        options=ONCE,
    ),
    Situation(
        name="address of another machine",
        script="raise OSError('[Errno 99] Cannot assign requested address')",
        cause="Cannot assign requested address",
        fix="address|0.0.0.0|bind",
        options=ONCE,
    ),
    Situation(
        name="checkpoint of a newer torch",
        script=(
            "raise RuntimeError('Attempted to read a PyTorch file with version 11, but the maximum "
            "supported version for reading is 10. Your PyTorch installation may be too old.')"
        ),
        cause="PyTorch installation may be too old|version 11",
        fix="newer|torch",
        options=ONCE,
    ),
    Situation(
        name="a worker of a multiprocessing pool is killed",
        script="import multiprocessing, os\ndef work(number):\n    if number == 3:\n        os.kill(os.getpid(), 9)\n"
        "    return number\nif __name__ == '__main__':\n    with multiprocessing.Pool(2) as pool:\n"
        "        pool.map(work, range(8))",
        cause=r"says: its multiprocessing\.Pool waits for a killed worker \(SIGKILL\)",
        fix="ProcessPoolExecutor",
    ),
    Situation(
        name="an error that one rank catches before it leaves",
        script=DDP + "row = {'id': 1}\nfor i in range(99):\n    step()\n    if i == 30 and rank == 1:\n        try:\n"
        "            row['ids']\n        except Exception as error:\n            print('Error:', repr(error))\n"
        "            break",
        cause=r"rank 1 ended with exit code 0.*rank 0 lost it, after it had printed: Error: KeyError\('ids'\)",
        fix="let it raise",
        options=ONCE,
    ),
    Situation(
        name="an error that is logged after the last step",
        script=DDP
        + "import logging\nfor i in range(9):\n    step()\ntry:\n    open('missing')\nexcept OSError as error:\n"
        "    logging.error('no model was saved: %s', error)",
        cause=r"rank \d printed an error last, and ended with exit code 0: ERROR:root:no model was saved: .*missing",
    ),
    Situation(
        name="a loader without a batch on one rank",
        script=GROUP + "data = torch.utils.data.TensorDataset(torch.zeros(3 if rank else 8, 2))\n"
        "loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)\n"
        "print(sum(float(x.sum()) for x, in loader) / len(loader))\ndist.barrier()",
        cause="rank 1: ZeroDivisionError: division by zero",
        fix=r"count is 0 .*train\.py:\d+, where len\(loader\) = 0",
        options=ONCE,
    ),
    Situation(
        name="a column that the batch lacks",
        script=GROUP + "batch = {'input_id': torch.zeros(2), 'labels': torch.zeros(2)}\nbatch['input_ids'].sum()",
        cause="KeyError: 'input_ids'",
        fix=r"keys that there are.*train\.py:\d+, where batch = dict of 2: input_id, labels",
        options=ONCE,
    ),
    Situation(
        name="a client of the script that is refused",
        script=GROUP + only(1, "raise RuntimeError('Connection refused by 10.0.0.4:8080')"),
        cause=r"rank 1: RuntimeError: Connection refused by 10\.0\.0\.4:8080",
        fix="service is up",
        options=ONCE,
    ),
    Situation(
        name="a checkpoint without a scaler",
        script=GROUP + 'scaler = torch.amp.GradScaler("cpu")\nscaler.load_state_dict({"state": {}})\n',
        cause="the checkpoint has no state of a GradScaler",
        fix=r"save scaler\.state_dict\(\) with the others'",
        options=ONCE,
    ),
)
