"""What a submission makes in a cluster, in its order."""
