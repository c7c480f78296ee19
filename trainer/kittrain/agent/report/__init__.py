"""What a node reports: progress, failures, and why a round ended."""
