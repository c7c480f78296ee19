"""What a script loads and saves, where, and its runs in experiment trackers."""
