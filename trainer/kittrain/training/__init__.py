"""The loop that a script runs: gradients, what ranks tell each other with every step, what rank 0 tells a person."""
