"""The allocator against recordings: the state at a window's start, and the open loop from it.

::

    from lifecycle_sim import read_trace
    from lifecycle_sim.replay.allocator.recording import open_loop

    told = open_loop(read_trace("snapshot.pickle"))
    told.exact                                   # every decision, every reserved byte and the final layout as recorded
    told.scores["placement"]                     # Score(exact=7591, recorded=7591, extra=0)
    told.differences                             # the first ones in words, if there are any
    told.levels.allocated.max(), told.slack      # four levels over events, at block level; what recording leaves open of two of them
    told.start.state                             # segments and blocks before the first event

``open_loop(trace, stop=n)`` replays only the events before the n-th: its ``final`` is the state at that point, which
:func:`~lifecycle_sim.replay.allocator.waste.waste` shares out.
"""

from lifecycle_sim.replay.allocator.recording.chosen import RecordedSettings, recorded_settings
from lifecycle_sim.replay.allocator.recording.comparison import DECISIONS, Difference, Score
from lifecycle_sim.replay.allocator.recording.layout import Layout, compare_layouts
from lifecycle_sim.replay.allocator.recording.open_loop import OpenLoop, open_loop, replayable
from lifecycle_sim.replay.allocator.recording.rebuild import OpenSize, Rebuilt, rebuild

__all__ = [
    "DECISIONS",
    "Difference",
    "Layout",
    "OpenLoop",
    "OpenSize",
    "Rebuilt",
    "RecordedSettings",
    "Score",
    "compare_layouts",
    "open_loop",
    "rebuild",
    "recorded_settings",
    "replayable",
]
