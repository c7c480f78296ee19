import sys

sys.path[:] = filter(None, sys.path)  # a module of the working folder must not hide one of Python's

import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402

if os.getpid() == 1:  # the kernel drops signals that the first process neither handles nor blocks; the agent takes them
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
folder, digest, fatal = sys.argv[1:4]
reason = ""
try:
    with open(folder + "/bootstrap.py", "rb") as file:
        program = file.read()
    archive = b""
    for part in ("0", "1"):
        with open(folder + "/kittrain.tar.xz." + part, "rb") as file:
            archive += file.read()
    if hashlib.sha256(program + archive).hexdigest() != digest:
        reason = "the trainer in " + folder + " is not the one that the job was submitted with"
except OSError as error:
    reason = "no trainer is mounted (" + str(error) + ")"
if reason:
    reason += "; submit the job again, or use an image with kittrain and --trainer image"
    sys.stderr.write("fatal: " + reason + "\n")
    with open("/dev/termination-log", "w") as file:
        json.dump({"outcome": "fatal", "reason": reason}, file)
    sys.exit(int(fatal))
scope = {"__name__": "bootstrap"}
exec(compile(program, folder + "/bootstrap.py", "exec"), scope)
scope["main"](archive, digest, int(fatal), sys.argv[4:])
