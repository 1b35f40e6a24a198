"""The largest batch: exact search, and decisions from measured peaks.

============= ==========================================================================================================
search        ``max_batch``, ``feasible_range``, ``largest``: integers of any size, both sides proved
probes        a batch and the peak of a step with it; files of them; what is no probe
curve         peaks over a count: shape, lines, a bound, in exact arithmetic
fitted        ``fit``: the model, for each sequence length or in tokens
left_out      what the model says of a probe it was not shown
decision      the largest batch by the model, with margin and binding constraint
============= ==========================================================================================================
"""

from lifecycle_sim.study.batch.curve import Shape
from lifecycle_sim.study.batch.decision import Binding, Decision, decide, decide_all
from lifecycle_sim.study.batch.fitted import Fitted, fit
from lifecycle_sim.study.batch.left_out import Residual, residuals
from lifecycle_sim.study.batch.probes import Probe, read_probes
from lifecycle_sim.study.batch.search import FeasibleRange, Largest, feasible_range, largest, max_batch

__all__ = [
    "Binding",
    "Decision",
    "FeasibleRange",
    "Fitted",
    "Largest",
    "Probe",
    "Residual",
    "Shape",
    "decide",
    "decide_all",
    "feasible_range",
    "fit",
    "largest",
    "max_batch",
    "read_probes",
    "residuals",
]
