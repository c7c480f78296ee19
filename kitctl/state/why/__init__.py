"""Why a job does not run, or has failed: one cause and one fix, from what is known of it. Pure.

A family of causes is a table, and a module of ``causes``; ``tables`` has their order, and ``explain`` chooses the row.
What never lives here: what asks for facts, and whether a failure is tried again, which the trainer's table decides
(``kittrain.outcome.causes``).
"""
