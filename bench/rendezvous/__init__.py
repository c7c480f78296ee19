"""Rendezvous of thousands of agents."""
