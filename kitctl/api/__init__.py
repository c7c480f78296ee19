"""The Python API, which the commands use and nothing else: client, job, snapshots, drill."""
