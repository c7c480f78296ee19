"""Time from a fault to the next optimizer step."""
