"""``python -m kittrain.agent``: see ``kittrain.agent.main``."""

import sys

from kittrain.agent.main import start

if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
