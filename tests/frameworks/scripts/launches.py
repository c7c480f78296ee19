"""Each rank starts a program by Accelerate's own launcher."""

import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = "from accelerate import Accelerator as A; a = A(); print(a.process_index, 'of', a.num_processes, 'meets')"

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        subprocess.run([sys.executable, "-m", "accelerate.commands.launch", "--cpu", str(program)], check=True)
