"""Jobs that are well: nothing may be told of them but where their ranks are."""

from __future__ import annotations

from typing import Final

from tests.corpus.failing import RUN
from tests.corpus.situation import DDP, GROUP, Situation, only

HEALTHY: Final = (
    Situation(
        name="healthy slow start",
        script="import time\ntime.sleep(18)\n" + DDP + "for _ in range(50):\n    step()",
        healthy=True,
    ),
    Situation(
        name="healthy long step",
        script=DDP + "for i in range(400):\n    step()\n    time.sleep(10 * (i == 300))",
        healthy=True,
    ),
    Situation(
        name="healthy evaluation",
        script=DDP
        + """
for i in range(100):
    step()
end = time.time() + 20
while time.time() < end:
    model.module(torch.ones(64, 4))
for i in range(50):
    step()
""",
        healthy=True,
    ),
    Situation(
        name="healthy save of rank 0",
        script=DDP
        + """
for i in range(100):
    step()
if rank == 0:
    end = time.time() + 20
    while time.time() < end:
        torch.save(model.state_dict(), "ck.pt")
dist.barrier()
for i in range(50):
    step()
""",
        healthy=True,
    ),
    Situation(
        name="healthy uneven ranks",
        script=DDP + "for i in range(100):\n    time.sleep(0.1 * rank)\n    step()",
        healthy=True,
    ),
    Situation(name="healthy without torch", script="import time\ntime.sleep(25)", healthy=True),
    Situation(
        name="healthy recompilation",
        script=DDP + "for i in range(60):\n    step()\n    end = time.time() + 20 * (i == 30)\n"
        "    while time.time() < end:\n        pass",
        healthy=True,
    ),
    Situation(
        name="healthy download in the loader",
        script=DDP
        + """
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(20 * (index == 0))
        return torch.ones(1)
for batch in torch.utils.data.DataLoader(Items(), num_workers=1):
    step()
""",
        healthy=True,
    ),
    Situation(name="healthy download of rank 0", script=GROUP + only(0, "time.sleep(22)"), healthy=True),
    Situation(
        name="healthy late rank",
        script="import os, time\nif os.environ['RANK'] == '1':\n    time.sleep(22)\n" + GROUP + "dist.barrier()",
        healthy=True,
    ),
    Situation(
        name="healthy early end of one rank",
        script=GROUP + "dist.barrier()\ndist.destroy_process_group()\nif rank:\n    time.sleep(22)",
        healthy=True,
    ),
    Situation(
        name="healthy error that is handled",
        script="import time, traceback\ntry:\n    raise OSError(28, 'No space left on device')\nexcept OSError:\n"
        "    traceback.print_exc()\ntime.sleep(5)",
        healthy=True,
    ),
    Situation(
        name="healthy words of failures",
        script="import time\nprint('OOMKilled hang: rank 1 NCCL error MemoryError: CUDA out of memory')\ntime.sleep(5)",
        healthy=True,
    ),
    Situation(name="healthy and short", script="print('done')", healthy=True),
    Situation(
        name="healthy retry of a connection",
        script="import time, urllib.request\nfor _ in range(5):\n    try:\n        urllib.request.urlopen('http://127.0.0.1:9/')\n"
        "    except OSError as error:\n        print('retrying:', error)\n        time.sleep(1)",
        healthy=True,
    ),
    Situation(
        name="healthy run with snapshots",
        script=RUN.replace("SIZE", "4").replace("STEPS", "300"),
        options=("--snapshot-every", "50"),
        healthy=True,
    ),
    Situation(
        name="healthy run that evaluates",
        script=RUN.replace("SIZE", "4")
        .replace("STEPS", "60")
        .replace(
            "            run.step(loss)",
            "            run.step(loss)\n            if step == 40:\n"
            "                import time\n                time.sleep(20)",
        ),
        healthy=True,
    ),
    Situation(
        name="healthy loader with many workers",
        script=DDP + "items = torch.utils.data.TensorDataset(torch.ones(99, 4))\nfor _ in range(3):\n"
        "    for batch in torch.utils.data.DataLoader(items, num_workers=3, persistent_workers=True):\n"
        "        step()",
        healthy=True,
    ),
    Situation(
        name="healthy flood of output",
        script=DDP + "for i in range(40000):\n    print('line', i)\nfor _ in range(20):\n    step()",
        healthy=True,
    ),
    Situation(
        name="healthy long accumulation",
        script=DDP + "for i in range(3):\n    end = time.time() + 8\n    while time.time() < end:\n"
        "        with model.no_sync():\n            model(torch.randn(2, 4)).sum().backward()\n    step()",
        healthy=True,
    ),
    Situation(
        name="healthy and ends with the error on the test set",
        script=DDP + "from multiprocessing import Pool\nif __name__ == '__main__':\n    with Pool(2) as pool:\n"
        "        print(pool.map(abs, range(4)))\n    for i in range(9):\n        step()\n    print('error: 0.031')",
        healthy=True,
    ),
    Situation(
        name="healthy and saves where no other node looks",
        script=DDP + "for i in range(300):\n    step()\n    if i % 50 == 0 and rank == 0:\n"
        "        os.makedirs('out', exist_ok=True)\n        torch.save(model.state_dict(), 'out/last.pt')",
        options=("--workdir", "."),
        healthy=True,
    ),
)
