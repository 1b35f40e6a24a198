"""Traces cut down to a window: what a ring buffer leaves of a recording, or what the first part of it was."""

from dataclasses import replace

from lifecycle_sim.events import Events, Trace


def without_first(trace: Trace, count: int) -> Trace:
    """Return the trace of one device as if its first *count* events had been dropped from the ring."""
    device = trace.devices[0]
    events = Events(**{name: column[count:] for name, column in vars(device.events).items()})
    return replace(trace, devices=(replace(device, events=events, spans=()),))
