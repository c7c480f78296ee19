"""Command lines of other launchers as jobs: torchrun, accelerate launch, deepspeed, mpirun, srun and python. Pure.

What never lives here: how kitctl's own flags are spelled (``cli``), and whether a job is valid (``spec``).
"""
