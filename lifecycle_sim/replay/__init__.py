"""What a Trace means: live intervals, timelines, peaks, owners and steady states. numpy only."""

from lifecycle_sim.replay.attribution import Attribution, Share, attribute, levels_by
from lifecycle_sim.replay.averages import Average, average
from lifecycle_sim.replay.device import DeviceReplay, Reconciliation, replay_all, replay_device
from lifecycle_sim.replay.grouping import BY, Grouping, group
from lifecycle_sim.replay.lifespans import Cell, Lifespans, Total, lifespans
from lifecycle_sim.replay.lifetimes import Lifetimes
from lifecycle_sim.replay.loss import Gap
from lifecycle_sim.replay.steady import Drift, SteadyState, Step, steady_state
from lifecycle_sim.replay.timeline import Peak, Timeline

__all__ = [
    "BY",
    "Attribution",
    "Average",
    "Cell",
    "DeviceReplay",
    "Drift",
    "Gap",
    "Grouping",
    "Lifespans",
    "Lifetimes",
    "Peak",
    "Reconciliation",
    "Share",
    "SteadyState",
    "Step",
    "Timeline",
    "Total",
    "attribute",
    "average",
    "group",
    "levels_by",
    "lifespans",
    "replay_all",
    "replay_device",
    "steady_state",
]
