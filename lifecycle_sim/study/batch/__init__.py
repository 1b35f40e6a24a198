"""The largest batch: exact search, and decisions from measured peaks.

============== ==================================================================================================================
search         ``max_batch``, ``feasible_range``, ``largest``: integers of any size, both sides proved
probes         a batch and the peak of a step with it; files of them; what is no probe
curve          peaks over a count: shape, lines, a bound, in exact arithmetic
fitted         ``fit``: the model, for each sequence length or in tokens
left_out       what the model says of a probe it was not shown
decision       the largest batch by the model, with margin and binding constraint
measured       probes from recordings, scenarios and captures
runs           a step for each length and batch, spread over processes
seeking        the search over runs: the model proposes, runs on both sides decide
verified       the largest batch, or the longest sequence, seen to fit
frontier       the largest batch at each length, and the peaks around it
helps          what could help where nothing fits, in bytes
growth         what a doubled sequence does to each owner
accumulation   a global batch from micro-batches
deadline       memory and a deadline together, enumerated
configurations ways to run a job, compared by the work that the same target takes
============== ==================================================================================================================
"""

from lifecycle_sim.study.batch.curve import Shape
from lifecycle_sim.study.batch.decision import Binding, Decision, decide, decide_all
from lifecycle_sim.study.batch.fitted import Fitted, fit
from lifecycle_sim.study.batch.left_out import Residual, residuals
from lifecycle_sim.study.batch.probes import Probe, read_probes
from lifecycle_sim.study.batch.runs import CapturePlan, ScenarioPlan, capture_runs, scenario_runs
from lifecycle_sim.study.batch.search import FeasibleRange, Largest, feasible_range, largest, max_batch
from lifecycle_sim.study.batch.verified import Verified, find_largest

__all__ = [
    "Binding",
    "CapturePlan",
    "Decision",
    "FeasibleRange",
    "Fitted",
    "Largest",
    "Probe",
    "Residual",
    "ScenarioPlan",
    "Shape",
    "Verified",
    "capture_runs",
    "decide",
    "decide_all",
    "feasible_range",
    "find_largest",
    "fit",
    "largest",
    "max_batch",
    "read_probes",
    "residuals",
    "scenario_runs",
]
