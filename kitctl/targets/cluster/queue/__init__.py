"""Jobs in queues: Kueue, quota, suspending and resuming."""
