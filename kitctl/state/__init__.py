"""What is known of a job: facts, the phase derived from them, logs, faults, checks and snapshots. Pure."""
