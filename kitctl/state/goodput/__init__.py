"""What a job's node-seconds were spent on: each in exactly one bucket, or unknown. Pure.

Intervals come from what was measured: the states of agents, the phases of their ranks, the moments that the target
knows. None is computed as what is left; what no measurement covers is ``unknown``.

Why: decision 54.
"""
