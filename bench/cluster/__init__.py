"""Benchmarks on the test cluster; what runs in its pods imports nothing of it."""
