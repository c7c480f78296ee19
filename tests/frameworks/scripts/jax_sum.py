"""JAX from the environment alone: the sum over all processes."""

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils


def main():
    jax.distributed.initialize()
    total = multihost_utils.process_allgather(jnp.ones(()) * (jax.process_index() + 1)).sum()
    print(f"process {jax.process_index()} of {jax.process_count()}: sum {int(total)}")


if __name__ == "__main__":
    main()
