"""Call stacks from what torch's profiler records of Python: functions as ranges of time, with names such as ``model.py(12): forward``.

The line is the function's first one or, if it ran already when the profile began, the line that it had come to. The stack of an
instant is made of the ranges on its thread that are open then::

    train.py(40): <module>      |──────────────────────────|
    model.py(12): forward          |───────────|
    torch/nn/…(114): forward          |──────|
    [memory]                             ^           its stack, innermost first: the third, the second, the first
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lifecycle_sim.events import NO_STACK, Frame, StackBuilder

NO_FILE = "??"
"""The file of a frame that has none; torch's own word."""

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_FUNCTION = re.compile(r"(.+)\((\d{1,9})\): (.+)", re.DOTALL)


class Call(NamedTuple):
    """A function that ran on a thread in ``[start, stop)``, in nanoseconds."""

    start: int
    stop: int
    name: str


def frame_of(name: str) -> Frame:
    """Return the frame of the function that the profiler calls *name*; one without file and line has the file ``??``.

    The address in ``<built-in method sqrt of Tensor object at 0x7fc1190e5310>`` is left out: it is another one in every step.
    """
    name = _ADDRESS.sub("", name)
    found = _FUNCTION.fullmatch(name)
    return Frame(name, NO_FILE, 0) if found is None else Frame(found[3], found[1], int(found[2]))


def stacks_at(times: Sequence[int], calls: Sequence[Call], stacks: StackBuilder) -> list[int]:
    """Return the number in *stacks* of the stack at each of *times*, which ascend, from the *calls* on their thread, in any order.

    Takes O(c log c + t + d) for c calls, t times and a sum d of the depths of the stacks that are different from the one before.
    """
    ordered = sorted(calls, key=lambda call: (call.start, -call.stop))
    open_: list[tuple[int, int]] = []
    found, upcoming, number = [], 0, NO_STACK
    for time in times:
        changed = False
        while upcoming < len(ordered) and ordered[upcoming].start <= time:
            call = ordered[upcoming]
            while open_ and open_[-1][0] <= call.start:
                open_.pop()
            open_.append((call.stop, stacks.frame(frame_of(call.name))))
            upcoming, changed = upcoming + 1, True
        while open_ and open_[-1][0] <= time:
            open_.pop()
            changed = True
        if changed:
            number = stacks.stack(frame for _, frame in reversed(open_))
        found.append(number)
    return found
