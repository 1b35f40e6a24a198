"""Recomputation: which storages to let go and make again, what it costs, and what peak remains."""
