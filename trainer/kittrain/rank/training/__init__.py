"""The training loop: gradients, the per-step exchange, snapshot schedule, progress, and how ranks outlive a round."""
