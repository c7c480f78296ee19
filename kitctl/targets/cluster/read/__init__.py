"""What a cluster tells about a job: its objects, pods, agents and logs."""
