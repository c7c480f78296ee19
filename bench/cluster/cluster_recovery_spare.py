"""``bench.cluster.cluster_recovery`` with a fixed size and a pod that stands by."""

from bench.cluster.cluster_recovery import SPARE_TABLE, main

if __name__ == "__main__":
    main(SPARE_TABLE)
