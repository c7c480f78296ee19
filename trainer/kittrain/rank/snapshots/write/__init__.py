"""How a snapshot is written: planned by all ranks, copied, published, finished."""
