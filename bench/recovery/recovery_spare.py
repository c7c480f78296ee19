"""``bench.recovery.recovery`` with a fixed size and a node that stands by. Needs root."""

from bench.recovery.recovery import main

if __name__ == "__main__":
    main("recovery-spare")
