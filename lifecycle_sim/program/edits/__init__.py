"""Edits of a captured step beside recomputation: its optimizer, shards of its tensors, and tensors that lie on the host for a while.

============== =========================================================================================================
storages       what a trace tells of each storage: category, phase, name
optimizer      another optimizer, where it needs nothing that the capture lacks
sharding       parameters, gradients and optimizer state divided among ranks
offload        tensors that are copied to the host and back over a link
============== =========================================================================================================

Each takes the edit of a step (:class:`~lifecycle_sim.program.remat.Edit`) and returns another, so that they can be joined.
"""
