"""Workloads that come with the kit, each about a page long: scripts to run, and to start one's own from."""
