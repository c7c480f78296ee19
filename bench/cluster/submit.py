"""Time from the command to the job's first optimizer step on the test cluster: kitctl and ``kubectl apply``.

With a folder of 50 MB, too: sent in full, unchanged, and with one file edited.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.cluster.commands import KITCTL, SHELL, job, manifest, temporary_namespace
from bench.measure import Result, interval, save
from tests.cluster.kind.images import pushed
from tests.cluster.kind.settings import SHARED, STATE, TORCH_IMAGE

ROUNDS: Final = int(os.environ.get("ROUNDS", "7"))
LIMIT_SECONDS: Final = 240.0
POLL_SECONDS: Final = 0.02
TOY: Final = ("1000", "--step-time", "0.2", "--record")
PLAIN: Final = Path(__file__).with_name("plain_script.py")
SCRIPT: Final = "import runpy, model; runpy.run_module('kittrain.workloads.toy', run_name='__main__')\n"
FILES, SIZE = 200, 250_000  # of the folder, and bytes of each: 50 MB
OBJECTS: Final = "job,service,configmap,role,rolebinding,serviceaccount,networkpolicy"
COMMANDS: Final = {
    "kitctl": "`kitctl submit`",
    "kubectl": "`kubectl apply`",
    "image": "`kitctl submit --trainer image`",
    "travels": "`kitctl submit --trainer travels`, an image with torch alone",
    "script, image": "a plain script, `--trainer image`",
    "script, travels": "a plain script, `--trainer travels`, an image with torch alone",
    "first": "`kitctl submit --workdir .`, 50 MB",
    "unchanged": "again, unchanged",
    "edited": "again, one file edited",
}


def main() -> None:
    """Measure, and write the table."""
    with temporary_namespace() as namespace, tempfile.TemporaryDirectory() as scratch:
        rounds = [_round(namespace, n, Path(scratch)) for n in range(ROUNDS + 1)][1:]
    edit = interval([one["edited"] - one["unchanged"] for one in rounds])
    travel, script = (
        interval([one[f"{prefix}travels"] - one[f"{prefix}image"] for one in rounds]) for prefix in ("", "script, ")
    )
    save(
        "submit",
        Result(
            note=f"Three nodes on the test cluster, which has the image; {ROUNDS} rounds of all in turn, after one "
            "to warm up. Seconds from the start of the command to the first optimizer step of any rank. kubectl "
            "applies a manifest that `kitctl render` printed before. The folder has 200 files; it is sent to a new "
            "claim, and then twice to the same one, the second time with one file edited, of which only that one is "
            f"sent ({SIZE // 1000} kB). Goals: within 10 % of kubectl; with the folder at most 5 s more, "
            "and edited at most 2 s more than unchanged; that difference was "
            f"{edit.median:.1f} s ({edit.low:.1f} to {edit.high:.1f}). A trainer that travels to an image with torch "
            f"alone, goal at most 0.5 s: {travel.median:+.2f} s ({travel.low:+.2f} to {travel.high:+.2f}) to the first "
            "step, compared with one in the image; of a plain script, which needs less of it, "
            f"{script.median:+.2f} s ({script.low:+.2f} to {script.high:+.2f}).",
            columns=("command", "median s", "interval s", "/ kubectl apply", "- kitctl submit, s"),
            rows=[_row(rounds, name) for name in COMMANDS],
            raw=rounds,
        ),
    )


def _row(rounds: Sequence[dict[str, float]], name: str) -> tuple[str, ...]:
    found = interval([one[name] for one in rounds])
    ratio = interval([one[name] / one["kubectl"] for one in rounds])
    more = interval([one[name] - one["kitctl"] for one in rounds])
    compared = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if name != "kubectl" else "1"
    beyond = f"{more.median:.1f} ({more.low:.1f} to {more.high:.1f})" if name != "kitctl" else "0"
    return COMMANDS[name], f"{found.median:.1f}", f"{found.low:.1f} to {found.high:.1f}", compared, beyond


def _round(namespace: str, number: int, scratch: Path) -> dict[str, float]:
    """Seconds to the first step, for each of the commands."""
    module = ("--", "-m", "kittrain.workloads.toy", *TOY, "/snapshots/record")
    ours = _first_step(namespace, f"k{number}", [*KITCTL, "submit", *job(f"k{number}", namespace, *module)])
    theirs = _kubectl(namespace, f"a{number}", job(f"a{number}", namespace, *module))
    return {
        "kitctl": ours,
        "kubectl": theirs,
        **_trainers(namespace, number, module),
        **_trainers(namespace, number, ("--", PLAIN.name), prefix="script, "),
        **_folder(namespace, f"f{number}", scratch / str(number)),
    }


def _trainers(namespace: str, number: int, words: Sequence[str], prefix: str = "") -> dict[str, float]:
    """Seconds with a trainer in the image, and with one that travels to an image with torch alone."""
    ways = {"image": ("--trainer", "image"), "travels": ("--trainer", "travels", "--image", pushed(TORCH_IMAGE))}
    seconds = {}
    for way in sorted(ways, reverse=bool(number % 2)):  # neither always follows the other
        name = f"{(prefix or way)[0]}{way[0]}{number}"
        command = [*KITCTL, "submit", *job(name, namespace, *ways[way], *words)]
        seconds[prefix + way] = _first_step(namespace, name, command)
    return seconds


def _kubectl(namespace: str, name: str, options: list[str]) -> float:
    path = STATE / f"bench-{name}.json"
    path.write_text(manifest(options))
    try:
        return _first_step(namespace, name, ["kubectl", "apply", "--server-side", "-f", str(path)])
    finally:
        path.unlink()


def _folder(namespace: str, name: str, folder: Path) -> dict[str, float]:
    """Seconds with a new folder, an unchanged one and an edited one, all with one claim."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    for index in range(FILES):
        (folder / f"{index}.bin").write_bytes(os.urandom(SIZE))
    (folder / "model.py").write_text("".join(f"# {index}\n" for index in range(100)))
    seconds = {}
    for step in ("first", "unchanged", "edited"):
        if step == "edited":
            (folder / "0.bin").write_bytes(os.urandom(SIZE))
        record = f"record-{step}"
        words = ("--workdir", str(folder), "--", "train.py", *TOY, f"/snapshots/{record}")
        command = [*KITCTL, "submit", *job(name, namespace, *words)]
        seconds[step] = _first_step(namespace, name, command, record=record, last=step == "edited")
    return seconds


def _first_step(namespace: str, name: str, command: list[str], *, record: str = "record", last: bool = True) -> float:
    """Run a command that starts a job; returns the seconds to its first recorded step.

    Deletes the job, and its claim if it is the last one with it.
    """
    start = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=SHELL, cwd=PLAIN.parent)
    while not _steps(namespace, name, record):
        assert time.perf_counter() - start < LIMIT_SECONDS, f"{name} took no step"
        time.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - start
    sent = re.search(r"claim \S+; the claim had .*", output.stdout + output.stderr)
    print(f"  {name}: {seconds:.1f} s" + (f" ({sent[0]})" if sent else ""), flush=True)
    kinds = f"{OBJECTS},pvc" if last else OBJECTS
    clean = ["kubectl", "delete", kinds, "--wait=true", "-n", namespace, "--all"]
    subprocess.run(clean, check=True, capture_output=True, env=SHELL)
    return seconds


def _steps(namespace: str, name: str, record: str) -> bool:
    records: list[Path] = list(SHARED.glob(f"pvc-*_{namespace}_{name}-snapshots/{record}/rank-*.jsonl"))
    return any(path.stat().st_size for path in records)


if __name__ == "__main__":
    main()
