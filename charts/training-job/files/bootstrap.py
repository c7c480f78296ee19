"""Starts a program of kittrain in an image that need not have it: judges the image, then unpacks what was sent.

Without shell, pip, network or a right to write but in a folder for temporary files. Images may have any Python 3, so
this file has no newer syntax, and imports only what each of them has. What can be run is run; what cannot is refused in
one line with its fix, for good: nothing of an image changes by trying again.

Kept free of kittrain itself, which needs Python 3.11. ``launcher.py`` runs it, once it has compared its digest. Each
start of a pod waits for it: modules that only some images need are imported where they are used.
"""

import hashlib
import importlib.util
import json
import marshal
import os
import re
import struct
import sys

PYTHON = (3, 11)
TORCH = (2, 6)
PACKAGES = ("kittrain", "kitjob")
# Where images keep an interpreter that is not the first one of PATH: a base system has one, too, without torch.
INTERPRETERS = (
    "python",
    "python3.14",
    "python3.13",
    "python3.12",
    "python3.11",
    "/opt/conda/bin/python",
    "/opt/venv/bin/python",
    "/venv/bin/python",
    "/app/.venv/bin/python",
    "/workspace/.venv/bin/python",
    "/usr/local/bin/python3",
    "/usr/bin/python3",
)
UNPACKED = "/var/run/kitctl.dev/unpacked"  # memory, in pods of kitctl
TRIED = "KIT_INTERPRETER"  # set for the interpreter that was found instead of the first one
PROGRAM = "kittrain.agent"  # the node's; others, such as a helper's, need few modules, which Python compiles by itself
# What a node may never need, or, of the library, only once a script imports it.
SELDOM = tuple(
    "kittrain/%s/" % name for name in ("agent/inside", "agent/metrics", "helper", "integrations", "rank", "workloads")
)
PROCESSES = 4  # to compile with


class Unfit(Exception):
    """Nothing can be trained in this image; the text says why, and what to do."""


def main(archive, digest, fatal, words):
    """Become a program of kittrain.

    Args:
        archive: kittrain and kitjob, packed.
        digest: of what was sent.
        fatal: exit code that ends the job.
        words: the program's module and arguments, after ``-C FOLDER`` if it starts in another folder.
    """
    if words[:1] == ["-C"]:
        os.chdir(words[1])
        words = words[2:]
    document = json.loads(os.environ.get("KIT_SPEC") or "{}")
    try:
        judge(document.get("job", {}), document.get("run", {}))
        trainer = document.get("job", {}).get("trainer", "auto")
        place = prepare(archive, digest, trainer, compiled=bool(words) and words[0].startswith(PROGRAM))
    except Unfit as error:
        other = None if TRIED in os.environ else another_interpreter()
        if other:
            os.environ[TRIED] = other
            os.execv(other, [other, "-c", launcher()] + sys.argv[1:])
        refuse(str(error), fatal)
    environment = variables(place)
    environment.pop(TRIED, None)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-P", "-m"] + words, environment)


def judge(job, run):
    """Raise ``Unfit`` if this interpreter cannot train the job: it is too old, or torch is missing or not fit."""
    version = "%d.%d.%d" % tuple(sys.version_info[:3])
    if sys.version_info < PYTHON:
        raise Unfit(
            "the image's Python is %s (%s), and 3.11 or later is needed: choose a newer image"
            % (version, sys.executable)
        )
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        libc = " for musl (Alpine), for which torch has no packages" if is_musl() else ""
        advice = "choose one of Debian or Ubuntu" if libc else "choose one that has it, such as pytorch/pytorch"
        raise Unfit("the image has no torch for its Python %s (%s)%s: %s" % (version, sys.executable, libc, advice))
    judge_torch(os.path.dirname(spec.origin), job)
    if importlib.util.find_spec("numpy") is None and not run.get("packages"):
        raise Unfit("the image has no numpy: add it to the image, or to a file that --requirements names")


def judge_torch(folder, job):
    """Raise ``Unfit`` for a torch that is too old, or built without what the job needs. Torch is not imported."""
    text = (read(os.path.join(folder, "version.py")) or b"").decode("utf-8", "replace")
    found = dict(re.findall(r"^(\w+)(?:\s*:[^=]+)?\s*=\s*(?:'([^']*)'|None)\s*$", text, re.MULTILINE))
    version = found.get("__version__", "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and tuple(map(int, numbers.groups())) < TORCH:
        raise Unfit("the image's torch is %s, and 2.6 or later is needed: choose a newer image" % version)
    gpus = job.get("gpusPerNode", 0)
    without = not any(found.get(name) for name in ("cuda", "hip", "xpu")) and "cuda" in found
    if gpus and without and job.get("backend", "auto") != "gloo" and os.environ.get("KIT_AUTO_BACKEND") != "gloo":
        raise Unfit(
            "the image's torch %s is for processors only, and each node has %s GPUs: choose an image with CUDA, or "
            "--backend gloo to train without them" % (version, gpus)
        )


def is_musl():
    """Whether the C library is musl."""
    import platform

    return platform.libc_ver()[0] != "glibc" and any(name.startswith("ld-musl-") for name in listed("/lib"))


def another_interpreter():
    """The path of an interpreter in this image that has what is needed; None: there is none."""
    import subprocess

    check = "import sys, importlib.util as u; sys.exit(not (sys.version_info >= %r and u.find_spec('torch')))" % (
        PYTHON,
    )
    for name in INTERPRETERS:
        path = which(name)
        if path and not same(path, sys.executable):
            try:
                if (
                    subprocess.call([path, "-c", check], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
                    == 0
                ):
                    return path
            except OSError:
                pass
    return None


def prepare(archive, digest, trainer, *, compiled):
    """The folder that has kittrain, unpacked once a pod and compiled if needed; None: the image has the same one."""
    files = unpack(archive)
    sources = files.pop("sources.sha256").decode()
    if trainer == "auto" and installed(sorted(files)) == sources:
        return None
    memory = UNPACKED if os.path.isdir(UNPACKED) else None
    for parent in (memory, os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"):
        if parent and os.path.isabs(parent):
            place = os.path.join(parent, "kittrain-" + digest[:16])
            try:
                if os.path.isdir(place) or not create(place, files, compiled=compiled):
                    for name, content in files.items():
                        repair(os.path.join(place, name), content)
            except OSError:
                continue
            refuse_shadows()
            return place
    raise Unfit(
        "no folder for temporary files can be written (TMPDIR, /tmp, /var/tmp, /dev/shm): mount an emptyDir at /tmp"
    )


def refuse_shadows():
    """Raise ``Unfit`` if the image's Python finds a package of our names before all that PYTHONPATH can name."""
    library = os.path.dirname(os.__file__)
    named = set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    first = []  # of the path, before the standard library's archive and folder
    for folder in sys.path:
        if folder == library or os.path.dirname(folder) == os.path.dirname(library):
            break
        first.append(folder)
    for folder in first[: max(0, len(first) - len(named))]:
        for name in PACKAGES:
            if os.path.exists(os.path.join(folder, name)) or os.path.exists(os.path.join(folder, name + ".py")):
                raise Unfit(
                    "the image has a %s of its own in %s, which its Python finds before the one that is sent: "
                    "remove it (a sitecustomize.py or .pth file puts it first)" % (name, folder)
                )


def installed(names):
    """The digest of these files of the image's own kittrain, as that of what was sent was made."""
    found = importlib.util.find_spec("kittrain")
    root = os.path.dirname(os.path.dirname(found.origin)) if found and found.origin else None
    contents = [read(os.path.join(root, name)) for name in names] if root else [None]
    if None in contents:
        return None
    return hashlib.sha256(b"".join(name.encode() + b"\0" + one for name, one in zip(names, contents))).hexdigest()


def unpack(archive):
    """The content of the archive's files, by path. It is a plain tar of files: ``tarfile`` takes twice as long."""
    try:
        import lzma
    except ImportError as error:
        raise Unfit("the image's Python cannot unpack the trainer (%s): choose an image with a complete Python" % error)
    packed, files, start = lzma.decompress(archive), {}, 0
    while packed[start : start + 1].strip(b"\0"):  # two empty blocks are the end
        folder, name = packed[start + 345 : start + 500].rstrip(b"\0"), packed[start : start + 100].rstrip(b"\0")
        size = int(packed[start + 124 : start + 135], 8)
        start += 512
        files[b"/".join(filter(None, [folder, name])).decode()] = packed[start : start + size]
        start += -(-size // 512) * 512
    return files


def create(place, files, *, compiled):
    """Make a folder with these files in one step, compiled if needed; whether it is this process that has made it."""
    draft = "%s.%s" % (place, os.getpid())
    for folder in {os.path.dirname(name) for name in files}:
        os.makedirs(os.path.join(draft, folder), exist_ok=True)
    for name, content in files.items():
        with open(os.path.join(draft, name), "wb") as file:
            file.write(content)
    if compiled and not getattr(sys, "pycache_prefix", None):
        compile_all(draft, place, files)
    try:
        os.rename(draft, place)
    except OSError:  # another process of this container was faster
        import shutil

        shutil.rmtree(draft, ignore_errors=True)
        return False
    return True


def compile_all(draft, place, files):
    """Write the bytecode of what a node needs, with several cores if there are; what cannot be written, Python makes.

    Python itself would compile each module where a start waits for it, and write each file with great care. Where an
    image forbids Python to write bytecode, each process would compile anew: then all of it is written here.
    """
    seldom = () if sys.dont_write_bytecode else SELDOM
    names = [name for name in files if name.endswith(".py") and not name.startswith(seldom)]
    names.sort(key=lambda name: -len(files[name]))
    count = min(PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    for folder in {os.path.dirname(name) for name in names}:
        os.makedirs(os.path.join(draft, folder, "__pycache__"), exist_ok=True)
    children = {}
    for share in range(1, count):
        child = fork()
        if child == 0:
            status = 1
            try:
                compile_some(draft, place, files, names[share::count])
                status = 0
            finally:
                os._exit(status)
        children[share] = child
    compile_some(draft, place, files, names[::count])
    for share, child in children.items():
        if not succeeded(child):  # it may have been killed in the middle of a file
            compile_some(draft, place, files, names[share::count])


def compile_some(draft, place, files, names):
    """Write the bytecode of these modules, which will be in ``place``."""
    for name in names:
        path = os.path.join(draft, name)
        target = importlib.util.cache_from_source(path)
        try:
            code = compile(files[name], os.path.join(place, name), "exec", dont_inherit=True)
            found = os.stat(path)
            times = struct.pack("<III", 0, int(found.st_mtime) & 0xFFFFFFFF, found.st_size)  # as PEP 552 has it
            with open(target, "wb") as file:
                file.write(importlib.util.MAGIC_NUMBER + times + marshal.dumps(code))
        except (OSError, SyntaxError, ValueError):  # Python tells it, should the module be needed
            if os.path.exists(target):
                os.remove(target)


def fork():
    """As ``os.fork``; None where the container may have no more processes."""
    try:
        return os.fork()
    except OSError:
        return None


def succeeded(child):
    """Wait for a child; whether there was one, and it has succeeded."""
    try:
        return child is not None and os.waitpid(child, 0)[1] == 0
    except OSError:  # whoever started this process ignores its children
        return False


def repair(path, content):
    """Write a file in one step, unless it is there as it was sent."""
    if read(path) == content:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = "%s.%s" % (path, os.getpid())
    with open(draft, "wb") as file:
        file.write(content)
    os.replace(draft, path)


def variables(place):
    """The environment of the program: kittrain comes first on its path, and it finds a home and a user name."""
    found = dict(os.environ)
    if place:
        found["PYTHONPATH"] = os.pathsep.join([place] + list(filter(None, [found.get("PYTHONPATH")])))
    found.setdefault("PYTHONUNBUFFERED", "1")
    if not os.access(found.get("HOME") or "/", os.W_OK):
        found["HOME"] = found.get("TMPDIR") or "/tmp"
    if not has_name():
        found.setdefault("USER", "trainer")
    return found


def has_name():
    """Whether this user id has a name, which torch's caches ask for."""
    try:
        import pwd

        pwd.getpwuid(os.getuid())
    except (ImportError, KeyError):
        return False
    return True


def refuse(reason, fatal):
    """End the job with a reason, which the pod's status has as well."""
    sys.stderr.write("fatal: %s\n" % reason)
    sys.stderr.flush()
    try:
        with open(os.environ.get("KIT_TERMINATION_LOG") or "/dev/null", "w") as file:
            json.dump({"outcome": "fatal", "reason": reason}, file)
    except OSError:
        pass
    sys.exit(fatal)


def launcher():
    """The text of ``launcher.py``, which this process was started with: ``python3 -c TEXT ...``."""
    return read("/proc/self/cmdline").split(b"\0")[2].decode()


def which(name):
    """The path of a program that can be executed; None: there is none."""
    folders = [""] if os.path.isabs(name) else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def same(one, other):
    """Whether two interpreters are one: links to a virtual environment's count, since their packages differ."""
    return os.path.abspath(one) == os.path.abspath(other or "")


def read(path):
    """A file's content; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def listed(folder):
    """The names in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
