"""CUDA memory snapshots: the plain document that ``torch.cuda.memory._snapshot()`` gives, of any release from 2.0 on, as a Trace."""

from lifecycle_sim.sources.snapshot.reader import read_snapshot

__all__ = ["read_snapshot"]
