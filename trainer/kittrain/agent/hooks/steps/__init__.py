"""What a script's training does: optimizer steps, evaluations, collectives, and whether its numbers are finite."""
