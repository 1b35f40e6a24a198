"""Replay memory lifecycles: who holds the peak, what is steady, what drifts, what would fit."""

__version__ = "0.1.0"
