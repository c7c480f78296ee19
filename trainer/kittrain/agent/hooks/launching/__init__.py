"""How a script starts ranks, groups and processes of its own: they are led to the job's, or told."""
