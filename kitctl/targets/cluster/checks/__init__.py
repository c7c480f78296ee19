"""The checks of `kitctl doctor` on a cluster."""
