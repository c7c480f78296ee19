"""The training loop: gradients, the ranks' per-step exchange, snapshot schedule, and progress reports."""
