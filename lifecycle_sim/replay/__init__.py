"""What a Trace means: live intervals, timelines, peaks, owners and steady states. numpy only."""

from lifecycle_sim.replay.device import DeviceReplay, Reconciliation, replay, replay_all
from lifecycle_sim.replay.grouping import BY, Grouping, group
from lifecycle_sim.replay.lifetimes import Lifetimes
from lifecycle_sim.replay.loss import Gap
from lifecycle_sim.replay.timeline import Peak, Timeline

__all__ = ["BY", "DeviceReplay", "Gap", "Grouping", "Lifetimes", "Peak", "Reconciliation", "Timeline", "group", "replay", "replay_all"]
