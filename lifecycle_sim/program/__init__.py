"""What would make a Trace: scenarios, the Program, and the engine that runs it."""

from lifecycle_sim.program.check import problems
from lifecycle_sim.program.engine import replay_through_engine, run
from lifecycle_sim.program.graph import (
    Capacity,
    CapacityMode,
    InSteps,
    Lives,
    Operator,
    PlannedEvent,
    Program,
    SameInstant,
    Storage,
    dependency_graph,
    static_table,
)
from lifecycle_sim.program.scenario import load_scenario, run_scenario

__all__ = [
    "Capacity",
    "CapacityMode",
    "InSteps",
    "Lives",
    "Operator",
    "PlannedEvent",
    "Program",
    "SameInstant",
    "Storage",
    "dependency_graph",
    "load_scenario",
    "problems",
    "replay_through_engine",
    "run",
    "run_scenario",
    "static_table",
]
