"""Python imports this first where the tests have put it on its path: hands a job's fork server to ``warm_fork_server``.

This process then only waits for the forked one. If no warm process takes it, it goes on as any fork server.
"""

import os
import sys

if os.environ.get("WARM_FORK_SERVER") and sys.orig_argv[1:4] == ["-P", "-m", "kittrain.agent.forkserver"]:
    import json
    import select
    import socket
    from contextlib import suppress

    pid = 0
    with suppress(OSError), socket.socket(socket.AF_UNIX) as warm:
        warm.connect(os.environ["WARM_FORK_SERVER"])
        socket.send_fds(warm, [b"\n"], [0, 1, 2])
        here = os.getcwd()  # noqa: PTH109 - imports as little as it can
        request = {"python": sys.executable, "shim": sys.orig_argv[4], "cwd": here, "env": dict(os.environ)}
        warm.sendall(json.dumps(request).encode() + b"\n")
        pid = int(warm.recv(64) or b"0")
    if pid:
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(pid)], [], [])
        os._exit(0)
