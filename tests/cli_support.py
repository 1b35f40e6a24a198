"""Runs commands as a person would, and small traces to run them on."""

import json
import subprocess
import sys

from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, StackBuilder, Trace

KIB = 1024


def lifecycle_sim(*arguments, **more):
    """The command in a process of its own."""
    text = {} if isinstance(more.get("input"), bytes) else {"text": True}
    return subprocess.run([sys.executable, "-m", "lifecycle_sim", *map(str, arguments)], capture_output=True, timeout=60, **text | more)


def keys_of(value):
    """The keys of a document, level by level, in their order; of a list those of its first item."""
    if isinstance(value, dict):
        return {key: keys_of(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return [keys_of(value[0])]
    return None


def json_of(result):
    return json.loads(result.stdout)


def small_trace():
    r"""Four storages on one device, a label each; two are never freed.

    ::

        event   0   1   2   3   4   5
        a       +---------------------      4 KiB
        b           +-------+               2 KiB
        c               +-------+           1 KiB
        d                           +-      1 KiB
        level   4   6   7   5   4   5       KiB
    """
    stacks = StackBuilder()
    one = stacks.add([Frame("forward", "/home/somebody/project/model.py", 12), Frame("main", "/home/somebody/project/train.py", 3)])
    two = stacks.add([Frame("step", "/home/somebody/project/train.py", 40)])
    events = Events.of(
        [Kind.ALLOC, Kind.ALLOC, Kind.ALLOC, Kind.FREE, Kind.FREE, Kind.ALLOC],
        [1, 2, 3, 2, 3, 4],
        [4 * KIB, 2 * KIB, KIB, 2 * KIB, KIB, KIB],
        stack=[one, two, one, two, one, two],
        label=[0, 1, 2, 1, 2, 3],
        time=[10, 20, 30, 40, 50, 60],
    )
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=0)
    return Trace((device,), "native", Evidence.MEASURED, Clock.NANOSECONDS, stacks=stacks.table(), labels=("a", "b", "c", "d"))
