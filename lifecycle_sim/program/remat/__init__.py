"""Recomputation as an edit of lifetimes: what a captured step becomes when calls of modules are checkpointed. It needs no torch.

============== =========================================================================================================
regions        calls of modules that can be recomputed: what they save, hold, cost; and which of them a pattern chooses
policies       what is saved inside of a region all the same (selective checkpointing)
holds          who holds a storage at a time: references counted, and the edited events in order
frames         one checkpointed call while the step runs: its inputs, what it saved, what was recomputed
editing        the edit itself: marks in, events out
again          one recomputation of a call
trace          the trace of edited steps
programs       a step, as it was or edited, as a Program for the engine
============== =========================================================================================================

A planner builds its rows from :class:`~lifecycle_sim.program.step_graph.StepGraph` (operators with FLOPs and bytes moved, storages with
sizes, holds, marks) and :func:`candidates` (the regions), and checks each plan with :func:`edit`.
"""

from lifecycle_sim.program.remat.editing import Edit, edit
from lifecycle_sim.program.remat.holds import Event, Happens
from lifecycle_sim.program.remat.policies import POLICIES, chosen_policy
from lifecycle_sim.program.remat.programs import program_of
from lifecycle_sim.program.remat.regions import Region, candidates, chosen_regions

__all__ = ["POLICIES", "Edit", "Event", "Happens", "Region", "candidates", "chosen_policy", "chosen_regions", "edit", "program_of"]
