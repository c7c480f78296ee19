"""Prints as many MiB as its argument says, one each second in numbered lines of about a KiB."""

from __future__ import annotations

import sys
import time

LINES = 1024

for second in range(int(sys.argv[1])):
    for number in range(second * LINES, (second + 1) * LINES):
        print(f"line {number} {'x' * 1000}")
    sys.stdout.flush()
    time.sleep(1)
print(f"{second + 1} MiB printed")
