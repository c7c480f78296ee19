"""Causes in scripts, and in what they need: files, programs, libraries. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

_INSTALLED: Final = r"[^)]*(?:-packages|lib/python)|…[^)]*/__init__\.py"  # a path, which may have lost its beginning
SCRIPTS: Final = Family(
    "Scripts, files and libraries",
    "Failed",
    (
        Rule(
            "program-not-found",
            r"FileNotFoundError: .*?No such file or directory: '([^']*)'",
            "the node has no program {0}",
            "install it in the image, or give its whole path",
            local="install it, or give its whole path",
            called=r"in _execute_child",
        ),
        Rule(
            "output-folder-not-found",
            r"FileNotFoundError: .*?No such file or directory: '([^']*)'",
            "the folder in which {0} would be made is not there",
            "os.makedirs(os.path.dirname(path), exist_ok=True) on each rank; if rank 0 removes it at the start, let it "
            "do so before a dist.barrier() that all wait at",
            called=r"\bopen\([^\n]*[ ,(=][\"'][wax][bt]?\+?[\"']",
        ),
        Rule(
            "time-named-file-not-found",
            r"FileNotFoundError: .*?No such file or directory: '([^']*(?<!\d)(?:\d{4}[-_]?\d\d[-_]?\d\d\D?\d\d"
            r"[-_:.]?\d\d[-_:.]?\d\d|\d\d[-_:]\d\d[-_:]\d\d|1[5-9]\d{8})(?!\d)[^']*)'",
            "the node has no {0}",
            "if the script names it by the time, each rank has a name of its own: let rank 0 choose it, and send it to "
            "all by broadcast_object_list(), or give it as an argument; else see that it is on each node",
            means="its name has a date or a time in it",
        ),
        Rule(
            "absolute-path-not-found",
            r"FileNotFoundError: .*?No such file or directory: '(/[^']*)'",
            "the node has no {0}",
            "mount it where the script looks for it (--volume), or send it: --workdir",
            local="create it, or give the script another path: on this machine each node sees the same files",
        ),
        Rule(
            "path-outside-working-folder",
            r"FileNotFoundError: .*?No such file or directory: '(\.\./[^']*)'",
            "",
            "it is relative to the folder from which the job was submitted, and not to the script's: "
            "Path(__file__).parent / '{0}'; what lies outside of that folder is not sent",
            local="it is relative to the folder from which the job was submitted, and not to the script's: "
            "Path(__file__).parent / '{0}'",
            seen="FileNotFoundError: [Errno 2] No such file or directory: '../data/train.csv'",
        ),
        Rule(
            "relative-path-not-found",
            r"^exit code 1: FileNotFoundError: .*?No such file or directory: '([^/'][^']*)'",
            "",
            "it is looked for in the working folder, which Hydra changes (hydra.job.chdir): "
            "hydra.utils.to_absolute_path('{0}'), or a whole path",
            seen="exit code 1: FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
        ),
        Rule(
            "move-across-file-systems",
            r"\[Errno 18\] Invalid cross-device link|Invalid cross-device link \(os error 18\)",
            "",
            "os.rename() and os.link() work within one file system: write the temporary file next to its final name, "
            "or shutil.move(), which copies and is not atomic",
            seen="OSError: [Errno 18] Invalid cross-device link: '/dev/shm/last.pt' -> 'out/last.pt'",
        ),
        Rule(
            "disk-quota-exceeded",
            r"\[Errno 122\] Disk quota exceeded|Disk quota exceeded \(os error 122\)",
            "",
            "remove what is not needed there, as old checkpoints and caches, raise the quota (of bytes or of files), "
            "or write elsewhere",
            seen="OSError: [Errno 122] Disk quota exceeded",
        ),
        Rule(
            "executable-file-busy",
            r"\[Errno 26\] Text file busy",
            "",
            "a program is replaced while it runs, or run while it is written: write it under another name and "
            "os.replace() it, on one rank, before a dist.barrier()",
            seen="OSError: [Errno 26] Text file busy: './tokenize'",
        ),
        Rule(
            "file-locks-unavailable",
            r"\[Errno 37\] No locks available",
            "",
            "that file system has no locks, as NFS without its lock service: put lock files and databases into /tmp of "
            "each node, or mount it with locks",
            seen="OSError: [Errno 37] No locks available",
        ),
        Rule(
            "file-lock-timeout",
            r"\bTimeout: The file lock '([^']*)' could not be acquired",
            "",
            "another process holds it for longer than that: release it before the others need it (one rank prepares in "
            "`with FileLock(...)`, and only then all meet at a barrier), or give it a longer timeout",
            seen="Timeout: The file lock 'cache.lock' could not be acquired.",
        ),
        Rule(
            "child-process-already-reaped",
            r"ChildProcessError: \[Errno 10\] No child processes",
            "",
            "something else has waited for that process already: leave out signal(SIGCHLD, SIG_IGN), and os.wait() for "
            "any process, which take it from subprocess and data loaders",
            seen="ChildProcessError: [Errno 10] No child processes",
        ),
        Rule(
            "file-system-read-only",
            r"Read-only file system(?!s)",
            "",
            "write to the snapshot folder or to /tmp, or set security.readOnlyRoot: false",
            local="write to another folder, or see how that one is mounted",
            seen="OSError: [Errno 30] Read-only file system: 'runs'",
        ),
        Rule(
            "home-folder-inaccessible",
            r"PermissionError: .*?: '(/(?:root/)?\.[a-z][^']*)'",
            "the script may not use {0}",
            "that is a home folder which the rank's user has not: --env HOME=/tmp, or a folder on a volume, as for "
            "what is downloaded (HF_HOME) and compiled (TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR)",
        ),
        Rule(
            "cache-folder-not-writable",
            r"RuntimeError: cannot cache function '[^']*': no locator|requires access to a writable cache directory",
            "",
            "--env NUMBA_CACHE_DIR=/tmp/numba, --env MPLCONFIGDIR=/tmp/matplotlib: the image's folders cannot be "
            "written to",
            seen="RuntimeError: cannot cache function '__shear_dense': no locator available for file ...",
        ),
        Rule(
            "file-permission-denied",
            r"PermissionError: .*?: '([^']*)'",
            "the script may not use {0}",
            "write to the snapshot folder or to /tmp, or set security.runAsUser",
            local="see who owns it; or write to another folder",
        ),
        Rule(
            "stale-file-handle",
            r"\[Errno 116\]|Stale file handle(?:\n|$)",
            "",
            "another machine has removed or replaced the file while it was open: write new files under new names, "
            "and open it again",
            seen="OSError: [Errno 116] Stale file handle: '/data/x.bin'",
        ),
        Rule(
            "storage-input-output-error",
            r"OSError: \[Errno 5\] Input/output error",
            "",
            "the disk or the volume of that path fails: see the kernel log of its machine, or its server; then "
            "restart the job",
            seen="OSError: [Errno 5] Input/output error: '/data/x.bin'",
        ),
        Rule(
            "non-ascii-text",
            r"'ascii' codec can't (?:en|de)code",
            "",
            "--env PYTHONUTF8=1, or open(..., encoding='utf-8'): Python takes the locale's encoding, which is "
            "ASCII here",
            seen="UnicodeEncodeError: 'ascii' codec can't encode character '\\xe9' in position 3",
        ),
        Rule(
            "locale-unsupported",
            r"unsupported locale setting(?:\n|$)",
            "",
            "the node lacks the locale that the script names: install it (locales, locale-gen), or let it name one "
            "that is there, as C.UTF-8; for setlocale(LC_ALL, '') --env LC_ALL=C.UTF-8",
            seen="locale.Error: unsupported locale setting",
        ),
        Rule(
            "child-process-killed",
            r"ChildFailedError: .*?Signal (\d+) \(SIGKILL\) received by PID"
            r"|CalledProcessError: .*?died with <Signals\.SIGKILL",
            "a process that the script starts was killed by SIGKILL",
            "mostly for lack of memory: smaller batches, fewer workers, or a larger --memory; without a launcher in "
            "the script kitctl tells which rank that was: paste its line after kitctl submit --",
            seen="ChildFailedError: train.py FAILED ... traceback : Signal 9 (SIGKILL) received by PID 42",
        ),
        Rule(
            "nested-launcher-failed",
            r"ChildFailedError: .*?exitcode *: (-?\d+)",
            "the launcher that the script starts has failed: a rank of its own ended with exit code {0}",
            "its own error is in the last lines, or in the log above them; without a launcher in the script kitctl "
            "tells it: paste its line after kitctl submit --",
            seen="ChildFailedError: train.py FAILED ... exitcode : 1 (pid: 42)",
        ),
        Rule(
            "git-repository-not-found",
            r"fatal: not a git repository \(or any",
            "",
            "the folder that was sent has no .git: name the commit when you submit, as by --env COMMIT=$(git rev-parse "
            "HEAD), or let the script go on without one",
            seen="fatal: not a git repository (or any of the parent directories): .git",
        ),
        Rule(
            "git-repository-owner-mismatch",
            r"fatal: detected dubious ownership in repository",
            "",
            "git refuses a folder of another user: --env GIT_CONFIG_COUNT=1 --env GIT_CONFIG_KEY_0=safe.directory "
            "--env 'GIT_CONFIG_VALUE_0=*', or let the script do without git",
            seen="fatal: detected dubious ownership in repository at '/workspace'",
        ),
        Rule(
            "child-process-ended-by-signal",
            r"CalledProcessError: .*?died with <Signals\.(SIG\w+)",
            "",
            "that program has crashed, or was ended, by {0}: run it by kitctl exec, or see what it printed before",
            seen="CalledProcessError: Command '...' died with <Signals.SIGSEGV: 11>.",
        ),
        Rule(
            "child-process-failed",
            r"CalledProcessError: ",
            "",
            "mend what the program says; more of it is in the last lines",
            seen="CalledProcessError: Command '...' returned non-zero exit status 2.",
        ),
        Rule(
            "other-launcher-variable-missing",
            r"KeyError: '((?:SLURM|OMPI_COMM_WORLD|PMI|MV2_COMM_WORLD|LSB)_[A-Z0-9_]+)'",
            "the variable {0} is not set: another launcher than kitctl sets it",
            "read RANK, WORLD_SIZE and LOCAL_RANK, which kitctl sets as torchrun does, and TORCHELASTIC_RUN_ID where a "
            "name of the run is wanted; or set it: --env {0}=...",
            called=r"os\.environ|<frozen os>|/os\.py",
        ),
        Rule(
            "environment-variable-missing",
            r"KeyError: '([A-Z][A-Z0-9_]+)'",
            "the variable {0} is not set",
            "set it: --env {0}=..., or --env {0}, which takes yours",
            called=r"os\.environ|<frozen os>|/os\.py",
        ),
        Rule(
            "local-rank-argument-unknown",
            r"^exit code 2\b[^\n]*unrecognized arguments: (?:[^\n]* )?--local[-_]rank",
            "",
            "leave --local-rank out: torch.distributed.launch gave it, and torchrun and kitctl do not; the script "
            "reads int(os.environ['LOCAL_RANK'])",
            seen="exit code 2: train.py: error: unrecognized arguments: --local-rank 0",
        ),
        Rule(
            "script-argument-unknown",
            r"^exit code 2\b[^\n]*unrecognized arguments: ([^\n]+)",
            "",
            "mend the arguments that follow the script, or add this one to its parser (parser.add_argument); options "
            "of kitctl stand before the script",
            seen="exit code 2: train.py: error: unrecognized arguments: --epoch 3",
        ),
        Rule(
            "script-argument-missing",
            r"^exit code 2\b[^\n]*the following arguments are required: ([^\n]+)",
            "",
            "give it after the script's name: kitctl submit ... -- train.py {0} ...",
            seen="exit code 2: train.py: error: the following arguments are required: --data",
        ),
        Rule(
            "shared-library-invalid",
            r"wrong ELF class|invalid ELF header|ELF load command|\.so[\w.]*: file too short",
            "",
            "the library was built for another system or processor, or is damaged: install it where the ranks run, by "
            "--requirements or in the image",
            local="the library was built for another system or processor, or is damaged: install it again",
            seen="OSError: ./x.so: wrong ELF class: ELFCLASS32",
        ),
        Rule(
            "configuration-not-found",
            r"Cannot find primary config|Primary config (?:directory|module) .*?not found",
            "",
            "send the folder of the configuration with the script: --workdir",
            seen="Cannot find primary config 'train'.",
        ),
        Rule(
            "pickled-name-not-found",
            r"AttributeError: Can't get attribute '([^']+)' on <module '__main__'",
            "the file that is read holds a {0} of another script's own, and this one has none",
            "write the file anew with a {0} that both scripts import from a module: of a script's own pickle keeps "
            "only that it is in __main__",
            called=r"(?s)\A(?!.*multiprocessing/spawn\.py).*(?:pickle\.load|torch/serialization\.py)",
        ),
        Rule(
            "object-not-picklable",
            r"PicklingError|Can't (?:get|pickle) (?:local object|<function|attribute)",
            "",
            "define it at the module's top level, and not as a lambda or within a function: processes that are spawned "
            "get it by name",
            seen="PicklingError: Can't pickle <function <lambda> ...>",
        ),
        Rule(
            "debugger-without-terminal",
            r"^(?:BdbQuit|bdb\.BdbQuit)\b",
            "the script stops in a debugger, and no terminal answers it",
            "remove breakpoint() and pdb.set_trace(); kitctl stacks shows where ranks are, kitctl exec opens a shell "
            "there",
        ),
        Rule(
            "pool-worker-died",
            r"BrokenProcessPool: ",
            "",
            "a worker of the script's pool was killed or crashed, mostly for lack of memory: fewer workers "
            "(max_workers), smaller pieces; its own error is in the log, if it wrote one",
            seen="BrokenProcessPool: A process in the process pool was terminated abruptly",
        ),
        Rule(
            "numpy-binary-incompatible",
            r"numpy\.dtype size changed|compiled using NumPy 1|_ARRAY_API not found",
            "",
            "install the numpy that the package was built for: --requirements with numpy<2, or a newer package",
            seen="numpy.dtype size changed, may indicate binary incompatibility",
        ),
        Rule(
            "cuda-library-not-found",
            r"(lib(?:cudart|cudnn|cublas|cufft|curand|cusparse|cusolver|nccl|nvrtc|nvJitLink|cupti|nvToolsExt)\w*"
            r"\.so[\w.]*): cannot open shared object file",
            "a package was built for another CUDA than there is: it needs {0}",
            "install the package's build for the torch that runs: python -c 'import torch; print(torch.version.cuda)'",
            seen="ImportError: libcudart.so.11.0: cannot open shared object file",
        ),
        Rule(
            "system-library-not-found",
            r"((?!libcuda\.|libnvidia-ml)lib[\w.+-]*\.so[\w.]*): cannot open shared object file",
            "the node has no system library {0}",
            "install the package that has it in the image: apt-file search {0} names it",
            local="install the package that has it: apt-file search {0} names it",
        ),
        Rule(
            "system-library-too-old",
            r"version `(GLIBC\w*_[\d.]+)' not found",
            "a package was built for a newer system than this one: it needs {0}",
            "a wheel that is built for older systems, or a newer image",
        ),
        Rule(
            "forkserver-process-failed",
            r"^(?:ConnectionResetError|ConnectionRefusedError|BrokenPipeError|EOFError)\b",
            "a process that the script starts has failed: from Python 3.14 on it imports the script again",
            "put what the script does under: if __name__ == '__main__': or multiprocessing.set_start_method('fork')",
            called=r"multiprocessing/(?:popen_)?forkserver\.py",
        ),
        Rule(
            "spawn-without-main-guard",
            r"has finished its bootstrapping phase",
            "the script starts processes by spawn, which import it again and would start more",
            "put what it does under: if __name__ == '__main__':",
        ),
        Rule(
            "warning-raised-as-error",
            r"^(?:[\w.]+\.)?(\w+Warning): ",
            "",
            "the script makes errors of warnings (warnings.simplefilter('error'), PYTHONWARNINGS, python -W): mend "
            "what this one says, or let it pass: warnings.filterwarnings('default', category={0})",
            seen="UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
        ),
        Rule(
            "json-syntax-error",
            r"^(?:[\w.]+\.)?JSONDecodeError: (?:Expecting (?:property name enclosed in double quotes|',' delimiter"
            r"|':' delimiter|value(?=: line (?!1 column 1\b)))|Illegal trailing comma"
            r"|Invalid (?:control character|\\escape))"
            r"[^\n]*?line (\d+) column (\d+)",
            "",
            "line {0}, column {1} of what that line reads is no JSON: it is cut short there, or has a comma before }} "
            "or ], a missing one, single quotes, or a comment; python -m json.tool FILE checks it",
            seen="JSONDecodeError: Expecting property name enclosed in double quotes: line 5 column 1 (char 75)",
        ),
        Rule(
            "json-extra-data",
            r"^(?:[\w.]+\.)?JSONDecodeError: Extra data: line (\d+) column",
            "",
            "the file has more than one JSON value, of which the second begins in line {0}: of JSON lines "
            "json.loads(line) for each line",
            seen="JSONDecodeError: Extra data: line 2 column 1 (char 75)",
        ),
        Rule(
            "json-or-toml-invalid",
            r"^(?:[\w.]+\.)?(?:JSON|TOML)DecodeError: ",
            "",
            "what that line reads is empty, cut short or in another format: print it, or `head -c 100` of its file; if "
            "ranks write it, write to another name, and os.replace() it when it is complete",
            seen="JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        ),
        Rule(
            "data-unreadable-in-worker",
            r"(?:BadZipFile: Bad (?:CRC-32|magic number)|error: Error -3 while decompressing|UnpicklingError: "
            r"|EOFError: Ran out of input|struct\.error: unpack)[^\n]*\(in DataLoader worker process",
            "",
            "the workers read through one file that was opened before they were started, and move each other's place "
            "in it: open it at its first use in each worker (__getitem__, not __init__); if num_workers=0 fails, too, "
            "the file is damaged",
            seen="zipfile.BadZipFile: Bad CRC-32 for file 'train/00004.npy' (in DataLoader worker process 1)",
        ),
        Rule(
            "file-content-invalid",
            r"Compressed file ended before|EOFError: (?:Ran out of input|No data left in file)|BadGzipFile"
            r"|Not a gzipped file|BadZipFile|not a zip file|cannot identify image file|image file is truncated"
            r"|Truncated File Read|unpack requires a buffer of"
            r"|ReadError: (?:unexpected end|not a gzip)|Parquet magic bytes not found|Parquet file size is 0 bytes"
            r"|broken data stream when reading|truncated file: eof = |pickle data was truncated|invalid load key, '\\"
            r"|Error while deserializing header: |Unable to load weights from pytorch checkpoint file",
            "",
            "the file is empty, damaged or not complete: compare its size, and get it again; if ranks write it, write "
            "to another name, and os.replace() it when it is complete",
            seen="EOFError: Compressed file ended before the end-of-stream marker was reached",
        ),
        Rule(
            "circular-or-shadowed-import",
            r"ImportError: cannot import name '([^']*)' from partially initialized module '([^']*)'",
            "",
            "modules import each other, and {1} has not come to {0} yet: import it within the function that uses it, "
            "or move it to a third one; if {1} should be a library, a file of the script's folder hides it: rename it",
            seen="ImportError: cannot import name 'Net' from partially initialized module 'models' (most likely ...",
        ),
        Rule(
            "name-not-in-local-module",
            r"ImportError: cannot import name '[^']*' from (?:partially initialized module )?'([^']*)' "
            rf"\((?!{_INSTALLED})",
            "",
            "if {0} should be a library, a file of the script's folder has its name and hides it: rename that file; "
            "else it has no such name, or imports go round in a circle",
            seen="ImportError: cannot import name 'load_dataset' from 'datasets' (/workspace/datasets.py)",
        ),
        Rule(
            "name-not-in-standard-library",
            r"ImportError: cannot import name '([^']*)' from '([^'.]*)[^']*' "
            r"\([^)]*\bpython3\.\d+/(?!\w+-packages/)",
            "",
            "{1} is a module of Python itself, and has no {0}: if a file of the script's has that name, too, rename "
            "it; else the script was written for a newer Python",
            seen="ImportError: cannot import name 'seed_everything' from 'random' (/usr/lib/python3.11/random.py)",
        ),
        Rule(
            "name-not-in-installed-package",
            rf"ImportError: cannot import name '([^']*)' from '([^'.]*)[^']*' \({_INSTALLED}",
            "",
            "the installed {1} has no {0}: install the version that the script was written for, as {1}==... in "
            "--requirements, or change the import",
            seen="ImportError: cannot import name 'AdamW' from 'transformers' (.../site-packages/transformers/...)",
        ),
        Rule(
            "numpy-alias-removed",
            r"AttributeError: module 'numpy' has no attribute '(bool|int|float|complex|object|str)'",
            "",
            "numpy has no np.{0} since 1.24: write {0}, Python's own (or np.float64, np.int64, np.complex128, "
            "np.bool_, of arrays); if a library does so, a newer version of it in --requirements",
            seen="AttributeError: module 'numpy' has no attribute 'float'.",
        ),
        Rule(
            "standard-module-shadowed",
            r"AttributeError: module '([^']+)' has no attribute '([^']*)' \(consider renaming '[^\n]*"
            r"standard library module",
            "the script's own {0}.py hides Python's module {0}, which has {1}",
            "give {0}.py another name: also libraries that import {0} get that file",
        ),
        Rule(
            "attribute-not-in-module",
            r"AttributeError: module '([^'.]+)[^']*' has no attribute '([^']*)'",
            "",
            "the installed {0} has no {1}: change the script, or install the version that it was written for, as "
            "{0}==... in --requirements; if a file of the script's folder is named {0}, rename that",
            seen="AttributeError: module 'torch' has no attribute 'compiler'",
        ),
        Rule(
            "keyword-argument-unknown",
            r"TypeError: (\S+)\(\) got an unexpected keyword argument '([^']*)'",
            "",
            "{0} takes no {1}: leave it out, or give it its new name; if the script was written for another version of "
            "a library, install that one: --requirements",
            seen="TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
        ),
        Rule(
            "path-already-exists",
            r"FileExistsError: .*?File exists: '([^']*)'",
            "",
            "if all ranks make it, one comes first: os.makedirs(..., exist_ok=True), or let rank 0 alone make it; if "
            "an earlier run has left it, choose another",
            seen="FileExistsError: [Errno 17] File exists: 'out/checkpoints'",
        ),
        Rule(
            "distributed-variable-missing",
            r"environment variable (RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set"
            r"|KeyError: '(?:RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
            "",
            "kitctl sets these variables: keep them, without os.environ.clear(), env -i, sudo, or env= of a subprocess "
            "that lacks them",
            seen="environment variable RANK expected, but not set",
        ),
        Rule(
            "rank-continues-in-background",
            r"(ranks? [\d, -]+ (?:has|have) gone on in the background, after exit code 0)",
            "{0}, and ended with the node",
            "let the script's own process train, in the foreground: no daemon, no os.fork() whose parent ends, no `&`",
            seen="ranks 0, 2 have gone on in the background, after exit code 0",
            means="they end with the node, whatever they have left to do",
        ),
        Rule(
            "spawned-process-failed",
            r"ProcessExitedException: process \d+ terminated with exit code",
            "",
            "the process that the script started has printed its own error: see the last lines",
            seen="ProcessExitedException: process 1 terminated with exit code 1",
        ),
    ),
)
