"""``make demo``: train the handwritten digits on local nodes, kill one of them if asked to, and show how it ended."""

from __future__ import annotations

import argparse
import sys
import threading

from tools.localjob import LocalJob, kitctl


def main() -> int:
    """Run the demo; the exit code is the job's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--kill", action="store_true")
    options = parser.parse_args()
    arguments = ("--nodes", str(options.nodes), "--snapshot-every", "20")
    show("submit", "--target", "local", *arguments)
    job = LocalJob.submit(*arguments)
    if options.kill:
        threading.Thread(target=kill_one, args=(job, options.nodes - 1), daemon=True).start()
    run("logs", "-f", job.name, "--target", "local")
    run("status", job.name, "--target", "local")
    return run("wait", job.name, "--target", "local")


def kill_one(job: LocalJob, node: int) -> None:
    """Kill a node once a snapshot exists."""
    if job.wait_for(lambda job: bool(job.report.progress.snapshot_step)):
        job.kill(node)
        print(f"demo: node {node} killed (SIGKILL to its whole process group); watch it come back", flush=True)


def run(*arguments: str) -> int:
    """Show a kitctl command and run it."""
    show(*arguments)
    return kitctl(*arguments).returncode


def show(*arguments: str) -> None:
    """Print a command as a user would type it."""
    print(f"\n$ kitctl {' '.join(arguments)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
