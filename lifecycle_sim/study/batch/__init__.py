"""The largest batch: exact search, and decisions from measured peaks.

============= ==========================================================================================================
search        ``max_batch``, ``feasible_range``, ``largest``: integers of any size, both sides proved
============= ==========================================================================================================
"""

from lifecycle_sim.study.batch.search import FeasibleRange, Largest, feasible_range, largest, max_batch

__all__ = ["FeasibleRange", "Largest", "feasible_range", "largest", "max_batch"]
