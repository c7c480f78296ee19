"""What a user hands in: a job file, flags, a launch line, a workload of kitctl."""
