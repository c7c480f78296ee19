"""Situations of the blind set in which a script fails: somebody made them up who had seen neither rules nor corpus."""

from __future__ import annotations

from typing import Final

from tests.corpus.situation import DDP, GROUP, ONCE, Situation

_MAPPED: Final = (
    GROUP
    + """
import numpy as np
path = f"tokens-{rank}.bin"
np.zeros(1 << 20, dtype=np.uint16).tofile(path)
class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return torch.from_numpy(self.tokens[index * 1000 : index * 1000 + 64].astype(np.int64))
data = Tokens()
os.truncate(path, 4096)
for batch in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
    dist.all_reduce(batch)
"""
)
_SHARDS: Final = (
    GROUP
    + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
os.makedirs("shards", exist_ok=True)
opened = [open(f"shards/{rank}-{index}.bin", "wb") for index in range(200)]
"""
)
_OTHER_CUDA: Final = """
import os, time
if os.environ["RANK"] == "0":
    raise ImportError("libcudart.so.11.0: cannot open shared object file: No such file or directory")
time.sleep(600)
"""
_NO_GUARD: Final = """
import multiprocessing, torch, torch.distributed as dist
multiprocessing.set_start_method("forkserver", force=True)
dist.init_process_group("gloo")
for batch in torch.utils.data.DataLoader(torch.ones(9, 1), num_workers=1):
    dist.all_reduce(batch)
"""

BLIND_SCRIPTS: Final = (
    Situation(
        name="the last batch of one rank is short",
        script=DDP
        + "for batch in torch.utils.data.DataLoader(torch.randn(64 - 3 * rank, 6), batch_size=8):\n"
        + "    step()\n    batch.view(8, 2, 3)",
        cause="rank 1: RuntimeError: shape '.8, 2, 3.' is invalid",
        fix=r"train\.py:\d+|drop_last",
        options=ONCE,
        first=(True, True),
    ),
    Situation(
        name="files that the script does not close",
        script=_SHARDS,
        cause="Too many open files: 'shards/",
        fix="close",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="one rank ends with a message",
        script=GROUP + "dist.barrier()\nif rank == 1:\n    sys.exit('shard 1 is empty')\ntime.sleep(2)\ndist.barrier()",
        cause="rank 1: SystemExit: shard 1 is empty",
        fix=r"train\.py:\d+",
        options=ONCE,
        first=(True, True),
    ),
    Situation(
        name="a package for another cuda",
        script=_OTHER_CUDA,
        cause="rank 0: a package was built for another CUDA than there is: it needs libcudart.so.11.0",
        fix="torch.version.cuda",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a file that the loader maps is truncated",
        script=_MAPPED,
        cause="DataLoader worker was killed by signal: Bus error",
        fix="maps.*truncated",
        options=ONCE,
        first=(True, False),
    ),
    Situation(
        name="a proxy that is not there",
        script="import urllib.request\nurllib.request.urlopen('http://data.example.com/train.tar')",
        cause="URLError: <urlopen error .Errno 111. Connection refused>",
        fix="proxy",
        options=("--env", "http_proxy=http://127.0.0.1:9", *ONCE),
        first=(False, False),
    ),
    Situation(
        name="vocabularies differ between ranks",
        script=GROUP + "torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(100 + rank, 8))",
        cause="rank 1: RuntimeError: .*appears not to match sizes of the same param",
        fix="same model on all ranks",
        options=ONCE,
        first=(True, True),
    ),
    Situation(
        name="processes import a script without a main guard",
        script=_NO_GUARD,
        cause="imports? (?:it|the script) again|starts processes by spawn|exited unexpectedly|has failed",
        fix="__main__",
        options=ONCE,
        first=(False, False),
    ),
)
