"""What starts the trainer in an image that need not have it: real interpreters, in folders that stand for images."""

from __future__ import annotations

import ast
import base64
import json
import os
import platform
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kitctl.base import names
from kitctl.code import trainer_package
from kitctl.code.trainer_package import TrainerPackage
from kitjob import document
from kitjob.job_keys import JobKeys
from kitjob.names import EXIT_CODES
from kitjob.run import RunFacts
from tests.trainer.nodes import free_port

FATAL = EXIT_CODES["fatal"]
TIMEOUT = 300.0  # seconds until a test with an agent fails: other tests may keep the cores busy
PROBE = """
import json, kittrain, os, sys
print(json.dumps([kittrain.__file__, sys.argv[1:], dict(os.environ), os.getcwd()]))
"""


class Image:
    """An interpreter with packages of its own, and what a pod of a job mounts there."""

    def __init__(self, folder: Path, sent: TrainerPackage) -> None:
        self.folder = folder
        self.sent = sent
        self.bin = folder / "venv" / "bin"
        venv.create(folder / "venv", symlinks=True)
        self.packages = next((folder / "venv" / "lib").glob("python3*")) / "site-packages"
        self.mounted = folder / "trainer"
        self.mounted.mkdir()
        for part in sent.binary_data:
            for name, content in part.items():
                (self.mounted / name).write_bytes(base64.b64decode(content))
        self.message = folder / "message"
        self.tmp = folder / "tmp"
        self.tmp.mkdir()

    def add(self, name: str, text: str = "", **files: str) -> None:
        """Install a package."""
        package = self.packages / name
        package.mkdir()
        (package / "__init__.py").write_text(text)
        for file, content in files.items():
            (package / f"{file}.py").write_text(content)

    def add_torch(self, version: str = "2.9.1", **values: str | None) -> None:
        """A torch that is only looked at, and numpy."""
        lines = [f"__version__ = {version!r}", *(f"{name}: str | None = {value!r}" for name, value in values.items())]
        self.add("torch", "raise ImportError('it takes a second: nobody needs it yet')", version="\n".join(lines))
        self.add("numpy")

    def command(self, *words: str, python: str | Path = "python3") -> list[str]:
        """A pod's command and arguments."""
        return [str(python), "-c", self.sent.launcher, str(self.mounted), self.sent.digest, str(FATAL), *words]

    def environ(self, job: JobKeys | None = None, run: RunFacts | None = None, **more: str) -> dict[str, str]:
        """A pod's environment."""
        return {
            "PATH": f"{self.bin}:{os.defpath}",
            "TMPDIR": str(self.tmp),
            "KIT_SPEC": document.write(job or JobKeys(), run or RunFacts()),
            "KIT_TERMINATION_LOG": str(self.message),
            **more,
        }

    def bootstrap(self) -> dict[str, Any]:
        """What ``bootstrap.py`` defines."""
        scope: dict[str, Any] = {"__name__": "bootstrap"}
        exec(compile(self.sent.bootstrap, "bootstrap.py", "exec"), scope)
        return scope

    def start(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a module of the trainer as a pod does."""
        environ = self.environ(**more)
        python = self.bin / "python3"
        return subprocess.run(
            self.command(*words, python=python),
            check=False,
            env=environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )

    def refusal(self, **more: Any) -> str:
        """Why nothing can be trained in it."""
        done = self.start("probe", **more)
        assert done.returncode == FATAL, (done.stdout, done.stderr)
        (line,) = done.stderr.splitlines()
        told = json.loads(self.message.read_text())
        assert told == {"outcome": "fatal", "reason": line.removeprefix("fatal: ")}
        return str(told["reason"])

    def probed(self, *words: str, **more: Any) -> tuple[Path, list[str], Mapping[str, str], str]:
        """Where kittrain comes from, the arguments, the environment and the working folder of a program."""
        (self.packages / "probe.py").write_text(PROBE)
        done = self.start(*words, **more)
        assert done.returncode == 0, done.stderr
        where, arguments, environ, folder = json.loads(done.stdout)
        return Path(where), arguments, environ, folder


@pytest.fixture(scope="session")
def sent() -> TrainerPackage:
    return trainer_package.load()


@pytest.fixture
def image(tmp_path: Path, sent: TrainerPackage) -> Image:
    return Image(tmp_path, sent)


def test_the_programs_are_ones_that_any_python_3_understands(sent: TrainerPackage) -> None:
    for program in (sent.launcher, sent.bootstrap):
        ast.parse(program, feature_version=(3, 4))


def test_a_program_of_the_trainer_is_started_with_what_was_sent(image: Image) -> None:
    image.add_torch()
    where, arguments, environ, folder = image.probed("probe", "--a", "b c", PYTHONPATH="/of/the/image")
    assert where.is_relative_to(image.tmp)
    assert (arguments, folder) == (["--a", "b c"], str(image.folder))
    assert environ["PYTHONPATH"].split(":") == [str(where.parent.parent), "/of/the/image"]
    assert environ["PYTHONUNBUFFERED"] == "1"


@pytest.mark.wide
def test_all_that_was_sent_is_unpacked_and_compiles(image: Image) -> None:
    image.add_torch()
    where, *_ = image.probed("probe")
    root = where.parent.parent
    own = Path(__file__).parents[3] / "trainer"
    found = {path.relative_to(root) for path in root.rglob("*.*") if "__pycache__" not in path.parts}
    expected = {path.relative_to(own) for name in ("kitjob", "kittrain") for path in (own / name).rglob("*.*")}
    assert found == {path for path in expected if "__pycache__" not in path.parts}
    for path in found:
        if path.suffix == ".py":
            ours, theirs = (own / path).read_bytes(), (root / path).read_bytes()
            assert meaning(ast.parse(theirs)) == meaning(without_annotations(ast.parse(ours))), path


def meaning(tree: ast.AST) -> tuple[str, list[int]]:
    """A program without its docstrings, with the line of each part."""
    for block in ast.walk(tree):
        if isinstance(getattr(block, "body", None), list):
            block.body = [one for one in block.body if not is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree), [getattr(one, "lineno", 0) for one in ast.walk(tree)]


def without_annotations(tree: ast.AST) -> ast.AST:
    """A program whose functions' parameters and results have none: those of classes are fields of records."""
    for one in ast.walk(tree):
        if isinstance(one, ast.arg):
            one.annotation = None
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            one.returns = None
    return tree


def is_text(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_a_second_program_of_the_pod_finds_it_unpacked_and_compiled(image: Image) -> None:
    image.add_torch()
    first, *_ = image.probed("probe")
    files = (first, *first.parent.glob("__pycache__/__init__.*.pyc"))
    written = [file.stat().st_mtime_ns for file in files]
    assert image.probed("probe")[0] == first
    assert [file.stat().st_mtime_ns for file in files] == written
    assert len(files) == 2


CHECK_BYTECODE = """
import importlib.machinery, pathlib, sys
class Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, *_, **__):
        raise ImportError(f"{self.path} is not compiled")
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    if str(path.relative_to(sys.argv[1])).startswith(tuple(sys.argv[2:])):
        continue
    code = Loader("module", str(path)).get_code("module")
    assert code.co_filename == str(path), code.co_filename
"""
NODE = "kittrain.agent.rendezvous.claims"  # of a node's agent; it does nothing when it is run


def assert_compiled(image: Image, *but: str) -> None:
    """Python has nothing to compile of what was sent, except below these folders."""
    (place,) = image.tmp.iterdir()
    subprocess.run([image.bin / "python3", "-c", CHECK_BYTECODE, place, *but], check=True)


@pytest.mark.parametrize("cores", [1, 4])
def test_a_nodes_agent_finds_all_that_it_needs_compiled(image: Image, cores: int) -> None:
    """By several processes, if there are cores; Python finds the bytecode as its own, and the paths of its files."""
    image.add_torch()
    (image.packages / "sitecustomize.py").write_text(f"import os; os.sched_getaffinity = lambda _: range({cores})")
    assert image.start(NODE).returncode == 0
    assert_compiled(image, *image.bootstrap()["SELDOM"])


def test_an_image_that_forbids_to_write_bytecode_does_not_compile_in_each_process(image: Image) -> None:
    image.add_torch()
    assert image.start(NODE, PYTHONDONTWRITEBYTECODE="1").returncode == 0
    assert_compiled(image)


def test_an_image_that_keeps_bytecode_elsewhere_has_it_there(image: Image) -> None:
    image.add_torch()
    cache = image.folder / "cache"
    assert image.start(NODE, PYTHONPYCACHEPREFIX=str(cache)).returncode == 0
    assert list(cache.rglob("claims.*.pyc"))
    assert not list(image.tmp.rglob("*.pyc"))


@pytest.mark.parametrize("failure", ["no process", "killed"])
def test_what_another_process_did_not_compile_is_compiled(image: Image, failure: str) -> None:
    """Where a container may have no more of them, or one is killed for its memory in the middle of a file."""
    scope = image.bootstrap()
    compile_some, own = scope["compile_some"], os.getpid()

    def killed(draft: str, place: str, files: Mapping[str, bytes], names: list[str]) -> None:
        if os.getpid() != own:
            (Path(draft) / "__pycache__" / f"{Path(names[0]).stem}.{sys.implementation.cache_tag}.pyc").write_text(
                "half"
            )
            os.kill(os.getpid(), signal.SIGKILL)
        compile_some(draft, place, files, names)

    scope |= {"PROCESSES": 2, "compile_some": killed} if failure == "killed" else {"fork": lambda: None}
    place, files = image.tmp / "place", {f"module{n}.py": b"x = 1" for n in range(8)}
    assert scope["create"](str(place), files, compiled=True)
    assert_compiled(image)


def test_what_does_not_compile_stops_nothing(image: Image) -> None:
    """Python tells it, if the module is ever needed: as a later version may not take all that this one takes."""
    scope = image.bootstrap()
    assert scope["create"](str(image.tmp / "place"), {"odd.py": b"not Python", "good.py": b"x = 1"}, compiled=True)
    assert_compiled(image, "odd")


def test_a_damaged_copy_is_replaced(image: Image) -> None:
    """Another program of the container may have written there."""
    image.add_torch()
    where, *_ = image.probed("probe")
    where.write_text("raise SystemExit('not ours')")
    assert image.probed("probe")[0] == where


def test_two_programs_of_a_container_may_unpack_it_at_once(image: Image) -> None:
    """And one that was killed meanwhile, whose process id a later container has again, is in nobody's way."""
    scope = image.bootstrap()
    files, place = {"a/b.py": b"1", "a/c/d.py": b"2"}, image.tmp / "place"
    left = image.tmp / f"place.{os.getpid()}" / "a"
    left.mkdir(parents=True)
    (left / "b.py").write_text("half")
    assert scope["create"](str(place), files, compiled=False)
    assert not scope["create"](str(place), files, compiled=False), "another one was faster"
    assert {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*.py")} == files
    assert list(image.tmp.iterdir()) == [place]


def test_another_folder_is_entered_first(image: Image, tmp_path: Path) -> None:
    """As a TrainJob has no working folder."""
    image.add_torch()
    (tmp_path / "work").mkdir()
    assert image.probed("-C", str(tmp_path / "work"), "probe", "x")[1:4:2] == (["x"], str(tmp_path / "work"))


def test_modules_of_the_working_folder_hide_none_of_pythons(image: Image) -> None:
    image.add_torch()
    for name in ("hashlib", "json", "lzma", "random", "re", "shutil", "kittrain"):
        (image.folder / f"{name}.py").write_text("raise SystemExit('a module next to the script')")
    assert image.probed("probe")[0].is_relative_to(image.tmp)


def test_what_does_not_have_the_digest_is_refused(image: Image) -> None:
    image.add_torch()
    for path in image.mounted.iterdir():
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        done = image.start("probe")
        assert (done.returncode, done.stdout) == (FATAL, "")
        assert "is not the one that the job was submitted with" in done.stderr
        path.write_bytes(content)
    assert image.probed("probe")


def test_a_mount_that_is_empty_is_told(image: Image) -> None:
    (image.mounted / "kittrain.tar.xz.1").unlink()
    done = image.start("probe")
    assert done.returncode == FATAL
    assert len(done.stderr.splitlines()) == 1
    assert "no trainer is mounted (" in done.stderr


def test_an_image_without_torch(image: Image) -> None:
    reason = image.refusal()
    assert reason.startswith("the image has no torch for its Python 3.")
    assert reason.endswith(": choose one that has it, such as pytorch/pytorch")


def test_a_torch_that_is_too_old(image: Image) -> None:
    image.add_torch("2.5.1+cu121", cuda="12.1")
    assert image.refusal() == "the image's torch is 2.5.1+cu121, and 2.6 or later is needed: choose a newer image"


@pytest.mark.parametrize("version", ["2.6.0", "2.14.1+debian", "3.0.0a0", "odd"])
def test_versions_that_may_do(image: Image, version: str) -> None:
    image.add_torch(version)
    assert image.probed("probe")


def test_a_torch_for_processors_only_where_there_are_gpus(image: Image) -> None:
    image.add_torch("2.9.1+cpu", cuda=None, hip=None, xpu=None)
    gpus = JobKeys(gpus_per_node=4)
    assert "is for processors only, and each node has 4 GPUs" in image.refusal(job=gpus)
    assert image.probed("probe", job=JobKeys())
    assert image.probed("probe", job=JobKeys(gpus_per_node=4, backend="gloo"))
    assert image.probed("probe", job=gpus, KIT_AUTO_BACKEND="gloo")


@pytest.mark.parametrize("build", ["cuda", "hip", "xpu"])
def test_torch_for_any_accelerator_will_do(image: Image, build: str) -> None:
    image.add_torch("2.9.1", **({"cuda": None, "hip": None, "xpu": None} | {build: "12"}))
    assert image.probed("probe", job=JobKeys(gpus_per_node=4))


def test_numpy_may_come_with_the_requirements(image: Image) -> None:
    image.add("torch", version="__version__ = '2.9.1'")
    assert image.refusal().startswith("the image has no numpy: ")
    packages: Any = {"digest": "0" * 64}
    run = RunFacts()
    assert image.probed("probe", KIT_SPEC=json.dumps({"version": 2, "run": {"packages": packages}, "job": {}}), run=run)


@pytest.mark.parametrize(("version", "told"), [((3, 8, 10), True), ((3, 10, 0), True), ((3, 11, 0), False)])
def test_a_python_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, sent: TrainerPackage, version: tuple[int, ...], *, told: bool
) -> None:
    scope: dict[str, Any] = {"__name__": "bootstrap"}
    exec(compile(sent.bootstrap, "bootstrap.py", "exec"), scope)
    monkeypatch.setattr(sys, "version_info", version)
    try:
        scope["judge"]({}, {})
        refused = ""
    except scope["Unfit"] as error:
        refused = str(error)
    assert ("and 3.11 or later is needed" in refused) == told, refused


def test_musl_is_told(monkeypatch: pytest.MonkeyPatch, sent: TrainerPackage) -> None:
    """Alpine's Python, as the module ``platform`` describes it: before 3.13 it did not know of musl."""
    scope: dict[str, Any] = {"__name__": "bootstrap"}
    exec(compile(sent.bootstrap, "bootstrap.py", "exec"), scope)
    monkeypatch.setattr(scope["importlib"].util, "find_spec", lambda _name: None)
    monkeypatch.setitem(scope, "listed", lambda _folder: ["ld-musl-x86_64.so.1", "libc.musl-x86_64.so.1"])
    for libc in (("", ""), ("musl", "1.2.5")):
        monkeypatch.setattr(platform, "libc_ver", lambda libc=libc: libc)
        with pytest.raises(scope["Unfit"], match=r"for musl \(Alpine\), .*: choose one of Debian or Ubuntu"):
            scope["judge"]({}, {})
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    with pytest.raises(scope["Unfit"], match="choose one that has it, such as pytorch/pytorch"):
        scope["judge"]({}, {})


def test_an_interpreter_that_is_not_the_first_one_is_found(tmp_path: Path, sent: TrainerPackage) -> None:
    """As in images whose base system has a Python of its own."""
    (tmp_path / "base").mkdir()
    (tmp_path / "conda").mkdir()
    base, conda = Image(tmp_path / "base", sent), Image(tmp_path / "conda", sent)
    conda.add_torch()
    (conda.packages / "probe.py").write_text(PROBE)
    (base.bin / "python").unlink()
    path = f"{base.bin}:{conda.bin}"
    done = subprocess.run(
        base.command("probe", python=base.bin / "python3"),
        check=False,
        env=base.environ(PATH=path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "KIT_INTERPRETER" not in json.loads(done.stdout)[2]


@pytest.mark.parametrize("change", ["", "newer", "a file less"])
def test_the_images_own_trainer_is_used_if_it_is_the_same(image: Image, change: str) -> None:
    image.add_torch()
    own = Path(__file__).parents[3] / "trainer"
    for package in ("kitjob", "kittrain"):
        subprocess.run(["cp", "-r", str(own / package), str(image.packages / package)], check=True)
    if change == "newer":
        (image.packages / "kitjob" / "names.py").open("a").write("\n# changed\n")
    if change == "a file less":
        (image.packages / "kittrain" / "workloads" / "toy.py").unlink()
    installed = not image.probed("probe")[0].is_relative_to(image.tmp)
    assert installed == (change == "")
    assert image.probed("probe", job=JobKeys(trainer="travels"))[0].is_relative_to(image.tmp)


@pytest.mark.parametrize("name", ["kittrain", "kitjob"])
@pytest.mark.parametrize(
    "named", ["", *(pytest.param(one, marks=pytest.mark.wide) for one in ("/nowhere", "own", "own:/nowhere"))]
)
def test_a_package_that_would_be_found_before_ours_is_told(image: Image, name: str, named: str) -> None:
    """As where a file that each interpreter runs at its start puts a folder first."""
    image.add_torch()
    own = image.folder / "own"
    (own / name).mkdir(parents=True)
    (own / name / "__init__.py").write_text("raise SystemExit('of the image')")
    path = {"PYTHONPATH": named.replace("own", str(own))} if named else {}
    assert image.probed("probe", **path)[0].is_relative_to(image.tmp), "what it names comes after ours"
    (image.packages / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(own)!r})")
    reason = image.refusal(**path)
    assert reason.startswith(f"the image has a {name} of its own in {own}, which its Python finds before the one "), (
        reason
    )
    assert image.refusal(job=JobKeys(trainer="travels"), **path) == reason


def test_a_folder_that_an_image_puts_first_need_not_matter(image: Image) -> None:
    image.add_torch()
    (image.folder / "own").mkdir()
    (image.packages / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(image.folder / 'own')!r})")
    assert image.probed("probe")[0].is_relative_to(image.tmp)


def test_a_folder_that_cannot_be_written_is_passed_over(image: Image, tmp_path: Path) -> None:
    image.add_torch()
    (tmp_path / "file").write_text("no folder")
    where, *_ = image.probed("probe", TMPDIR=str(tmp_path / "file"))
    assert where.is_relative_to("/tmp")


def test_the_memory_of_a_pod_comes_before_its_disk(image: Image) -> None:
    """Five hundred small files took 0.2 s on a disk, of each of three pods on one machine."""
    scope = image.bootstrap()
    scope["refuse_shadows"] = lambda: None  # this interpreter is no image's
    assert scope["UNPACKED"] == names.UNPACKED_PATH
    assert not Path(names.UNPACKED_PATH).exists()  # else this test shows nothing

    def unpacked() -> Path:
        return Path(scope["prepare"](image.sent.archive, image.sent.digest, "travels", compiled=False))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(image.tmp))
        assert unpacked().parent == image.tmp
        assert not Path(names.UNPACKED_PATH).exists()  # it is not made where it is not mounted
        scope["UNPACKED"] = str(image.folder)
        assert unpacked().parent == image.folder


PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '0.2'])"])
child.wait()
found = False
end = time.monotonic() + 60
while True:
    states = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with open("/proc/" + name + "/stat") as file:
                states.append(file.read().rpartition(")")[2].split()[0])
    if "wait" in sys.argv or "Z" in states:
        found = True  # the orphan has ended
    if found and ("Z" not in states or time.monotonic() > end):
        break
    time.sleep(0.1)
with open("/proc/self/status") as file:
    blocked = [line.split()[1] for line in file if line.startswith("SigBlk")]
print("zombies", states.count("Z"), "blocked", *blocked, flush=True)
if "wait" in sys.argv:
    time.sleep(600)
"""


def container(image: Image, *words: str, init: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """The agent of a job of one node as in a container: in a process namespace of its own, and as its first process."""
    own = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*own, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make user namespaces (sysctl kernel.unprivileged_userns_clone)")
    script = image.folder / "parent.py"
    script.write_text(PARENT)
    run = RunFacts(restart_in_place=False, rendezvous_port=free_port())
    environ = os.environ | image.environ(JobKeys(trainer="travels"), run, KIT_NODE_INDEX="0", KIT_AUTO_BACKEND="gloo")
    environ |= {"PET_LOCAL_ADDR": "127.0.0.1", "PET_RDZV_ID": "run", "PATH": os.environ["PATH"]}
    environ.pop("PYTHONPATH", None)
    command = image.command("kittrain.agent", "--", str(script), *words, python=sys.executable)
    return subprocess.Popen(
        [*own, *init, *command],
        env=environ,
        cwd=image.folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.skipif(sys.platform != "linux", reason="pods run Linux")
def test_the_agent_is_the_init_of_a_container_without_one(image: Image) -> None:
    """It reaps orphans, and its ranks have no signal blocked."""
    output, _ = container(image).communicate(timeout=TIMEOUT)
    assert "zombies 0 blocked 0000000000000000" in output, output
    assert "all ranks succeeded" in output


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.skipif(sys.platform != "linux", reason="pods run Linux")
def test_a_stop_signal_to_the_first_process_drains_the_node(image: Image) -> None:
    process = container(image, "wait")
    assert process.stdout is not None
    seen = ""
    while "zombies" not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    first = next(int(pid) for pid in children(process.pid))
    os.kill(first, signal.SIGTERM)
    output, _ = process.communicate(timeout=TIMEOUT)
    assert json.loads(image.message.read_text())["outcome"] == "drained", seen + output


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
@pytest.mark.skipif(sys.platform != "linux", reason="pods run Linux")
def test_a_stop_signal_before_the_agent_listens_is_not_lost(image: Image) -> None:
    """The kernel drops a signal that a first process neither blocks nor handles."""
    process = container(image, "wait")
    first = until(lambda: next(iter(children(process.pid)), None))
    until(lambda: b"unshare" not in Path(f"/proc/{first}/cmdline").read_bytes())  # it blocks signals, too, for a moment
    until(lambda: not int(blocked(first), 16) ^ (1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1))
    os.kill(first, signal.SIGTERM)
    output, _ = process.communicate(timeout=TIMEOUT)
    assert json.loads(image.message.read_text())["outcome"] == "drained", output


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def blocked(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk"))


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.001)
    return found
