"""What snapshots, restores and model files cost, in time and memory."""
