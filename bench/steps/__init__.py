"""What the trainer, its hooks and virtual ranks cost in each step."""
