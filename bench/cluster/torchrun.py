"""torchrun in a pod of the test cluster: ``python -m bench.cluster.torchrun RDZV_CONF TORCHRUN_OPTIONS...``.

Debian's torch has no libuv, which torchrun's store requires. An option says whether a node hosts it.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from torch.distributed import TCPStore
from torch.distributed import run as torchrun
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend as c10d

if __name__ == "__main__":
    hosts = str(os.environ["KIT_NODE_INDEX"] == "0").lower()
    vars(c10d)["TCPStore"] = partial(TCPStore, use_libuv=False)
    torchrun.main([f"--rdzv-conf={sys.argv[1]},is_host={hosts}", *sys.argv[2:]])
