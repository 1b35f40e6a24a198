"""Replay memory lifecycles: who holds the peak, what is steady, what drifts, what would fit.

The public names below are imported when they are first asked for::

    import lifecycle_sim as ls

    trace = ls.read_trace("snapshot.pickle")
    for replayed in ls.replay_all(trace):
        print(replayed.peak, ls.attribute(replayed).shares[0])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import lifecycle_sim.output.figures as figures
    import lifecycle_sim.study.budget as budget
    from lifecycle_sim.errors import (
        CaptureError,
        InputError,
        LifecycleError,
        MissingExtraError,
        OutputExistsError,
        ScenarioError,
        SnapshotError,
        TraceFormatError,
        TraceInvariantError,
        UnitError,
        UnsafePickleError,
    )
    from lifecycle_sim.events import DeviceTrace, Events, Finding, Trace
    from lifecycle_sim.events.check import check
    from lifecycle_sim.output.exports import write
    from lifecycle_sim.output.summary import summarise
    from lifecycle_sim.output.verdict import Verdict, verdict
    from lifecycle_sim.program.engine import run
    from lifecycle_sim.program.graph import Program
    from lifecycle_sim.program.scenario import load_scenario, run_scenario
    from lifecycle_sim.replay import DeviceReplay, Lifetimes, Peak, Timeline, replay_all, replay_device
    from lifecycle_sim.replay.allocator.recording import OpenLoop, open_loop
    from lifecycle_sim.replay.attribution import Attribution, attribute
    from lifecycle_sim.replay.steady import SteadyState, steady_state
    from lifecycle_sim.sources.capture import (
        Capture,
        DeviceProfile,
        ParameterTable,
        Recording,
        Variant,
        capture,
        capture_file,
        params,
        record,
    )
    from lifecycle_sim.sources.detect import read_trace
    from lifecycle_sim.study.applied import VerifiedPlan, apply, verify
    from lifecycle_sim.study.batch import (
        CapturePlan,
        Decision,
        FeasibleRange,
        Fitted,
        Largest,
        Probe,
        Verified,
        capture_runs,
        decide,
        feasible_range,
        find_largest,
        fit,
        largest,
        max_batch,
    )
    from lifecycle_sim.study.batch_plans import BatchPlans, largest_batch
    from lifecycle_sim.study.budget import StateBudget, state_budget
    from lifecycle_sim.study.grid import Sweep, sweep_file
    from lifecycle_sim.study.pipeline.line_answers import what_if_line
    from lifecycle_sim.study.pipeline.line_engine import run_line
    from lifecycle_sim.study.pipeline.line_figures import measure_line
    from lifecycle_sim.study.pipeline.line_file import load_line
    from lifecycle_sim.study.pipeline.line_trace import line_trace
    from lifecycle_sim.study.pipeline.schedule_capture import captured_layers
    from lifecycle_sim.study.pipeline.schedule_file import load_layers
    from lifecycle_sim.study.pipeline.schedule_orders import schedule
    from lifecycle_sim.study.pipeline.schedule_result import ScheduleRun, run_schedule
    from lifecycle_sim.study.pipeline.schedule_study import compare_schedules, largest_microbatch
    from lifecycle_sim.study.pipeline.schedule_trace import schedule_trace
    from lifecycle_sim.study.plan import RegionFrontier, RegionPlan, frontier, plan
    from lifecycle_sim.study.prediction import Prediction, predict
    from lifecycle_sim.study.recompute import Recompute, what_if
    from lifecycle_sim.study.sweep import sweep_allocator
    from lifecycle_sim.study.what_if import WhatIf, what_if_allocator
    from lifecycle_sim.study.why import Why, why_out_of_memory

__version__ = "0.1.0"

__all__ = [
    "Attribution",
    "BatchPlans",
    "Capture",
    "CaptureError",
    "CapturePlan",
    "Decision",
    "DeviceProfile",
    "DeviceReplay",
    "DeviceTrace",
    "Events",
    "FeasibleRange",
    "Finding",
    "Fitted",
    "InputError",
    "Largest",
    "LifecycleError",
    "Lifetimes",
    "MissingExtraError",
    "OpenLoop",
    "OutputExistsError",
    "ParameterTable",
    "Peak",
    "Prediction",
    "Probe",
    "Program",
    "Recompute",
    "Recording",
    "RegionFrontier",
    "RegionPlan",
    "ScenarioError",
    "ScheduleRun",
    "SnapshotError",
    "StateBudget",
    "SteadyState",
    "Sweep",
    "Timeline",
    "Trace",
    "TraceFormatError",
    "TraceInvariantError",
    "UnitError",
    "UnsafePickleError",
    "Variant",
    "Verdict",
    "Verified",
    "VerifiedPlan",
    "WhatIf",
    "Why",
    "apply",
    "attribute",
    "budget",
    "capture",
    "capture_file",
    "capture_runs",
    "captured_layers",
    "check",
    "compare_schedules",
    "decide",
    "feasible_range",
    "figures",
    "find_largest",
    "fit",
    "frontier",
    "largest",
    "largest_batch",
    "largest_microbatch",
    "line_trace",
    "load_layers",
    "load_line",
    "load_scenario",
    "max_batch",
    "measure_line",
    "open_loop",
    "params",
    "plan",
    "predict",
    "read_trace",
    "record",
    "replay_all",
    "replay_device",
    "run",
    "run_line",
    "run_scenario",
    "run_schedule",
    "schedule",
    "schedule_trace",
    "state_budget",
    "steady_state",
    "summarise",
    "sweep_allocator",
    "sweep_file",
    "verdict",
    "verify",
    "what_if",
    "what_if_allocator",
    "what_if_line",
    "why_out_of_memory",
    "write",
]

_HOMES = {
    "errors": "CaptureError InputError LifecycleError MissingExtraError OutputExistsError ScenarioError SnapshotError TraceFormatError "
    "TraceInvariantError UnitError UnsafePickleError",
    "events": "DeviceTrace Events Finding Trace",
    "events.check": "check",
    "output.exports": "write",
    "output.summary": "summarise",
    "output.verdict": "Verdict verdict",
    "program.engine": "run",
    "program.graph": "Program",
    "program.scenario": "load_scenario run_scenario",
    "replay": "DeviceReplay Lifetimes Peak Timeline replay_all replay_device",
    "replay.allocator.recording": "OpenLoop open_loop",
    "replay.attribution": "Attribution attribute",
    "replay.steady": "SteadyState steady_state",
    "sources.capture": "Capture DeviceProfile ParameterTable Recording Variant capture capture_file params record",
    "sources.detect": "read_trace",
    "study.applied": "VerifiedPlan apply verify",
    "study.batch_plans": "BatchPlans largest_batch",
    "study.batch": "CapturePlan Decision FeasibleRange Fitted Largest Probe Verified capture_runs decide feasible_range find_largest fit "
    "largest max_batch",
    "study.grid": "Sweep sweep_file",
    "study.plan": "RegionFrontier RegionPlan frontier plan",
    "study.budget": "StateBudget state_budget",
    "study.pipeline.line_answers": "what_if_line",
    "study.pipeline.line_engine": "run_line",
    "study.pipeline.line_figures": "measure_line",
    "study.pipeline.line_file": "load_line",
    "study.pipeline.line_trace": "line_trace",
    "study.pipeline.schedule_capture": "captured_layers",
    "study.pipeline.schedule_file": "load_layers",
    "study.pipeline.schedule_orders": "schedule",
    "study.pipeline.schedule_result": "ScheduleRun run_schedule",
    "study.pipeline.schedule_study": "compare_schedules largest_microbatch",
    "study.pipeline.schedule_trace": "schedule_trace",
    "study.prediction": "Prediction predict",
    "study.recompute": "Recompute what_if",
    "study.sweep": "sweep_allocator",
    "study.what_if": "WhatIf what_if_allocator",
    "study.why": "Why why_out_of_memory",
}
_MODULES = {"budget": "study.budget", "figures": "output.figures"}
_HOME_OF = {name: (f"lifecycle_sim.{home}", name) for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"lifecycle_sim.{_MODULES[name]}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, own_name = _HOME_OF[name]
    value = getattr(importlib.import_module(home), own_name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
