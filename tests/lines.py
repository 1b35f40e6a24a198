"""Lines to run, and second implementations of what runs them: recursions that know no clock and no events."""

from __future__ import annotations

import heapq
from itertools import product

from hypothesis import strategies as st

from lifecycle_sim.study.pipeline.line import (
    Arrivals,
    Breakdown,
    InputUntil,
    ItemKind,
    Line,
    LineCapacity,
    Order,
    OutputFrom,
    Per,
    SetUp,
    Stage,
    WhenFull,
    sizes_along,
)
from lifecycle_sim.study.pipeline.line_draws import Draw, Shape


def tandem(times, count, every, **more):
    """Stages one behind the other with one machine each, and items that come evenly."""
    stages = tuple(Stage(f"s{k}", Draw.fixed(time), **more) for k, time in enumerate(times))
    kind = ItemKind("item", count, tuple(stage.name for stage in stages), Arrivals.EVEN, Draw.fixed(every))
    return Line(stages, (kind,))


def departures(arrive, times, buffers):
    """When each item leaves each stage: one machine a stage, *buffers* places before each (None: any number), blocking after service.

    ``D[i][k] = max(max(D[i][k-1], D[i-1][k]) + s[k], D[i-b-1][k+1])`` with b the places before stage k + 1.
    """
    left = []
    for number, came in enumerate(arrive):
        row, at = [], came
        if buffers[0] is not None and number > buffers[0]:
            at = max(at, left[number - buffers[0] - 1][0])
        entered = at
        for k, time in enumerate(times):
            begin = max(at, left[number - 1][k]) if number else at
            at = begin + time
            if k + 1 < len(times) and buffers[k + 1] is not None and number > buffers[k + 1]:
                at = max(at, left[number - buffers[k + 1] - 1][k + 1])
            row.append(at)
        left.append(row)
        row.insert(0, entered)
        left[-1] = row[1:]
        yield entered, row[1:]


def exits_of_parallel(arrive, stages):
    """When each of the items leaves: *stages* of (time, machines), any number of places, first come first served."""
    coming = sorted((time, number) for number, time in enumerate(arrive))
    for time, machines in stages:
        free = [0] * machines
        done = []
        for came, number in coming:
            end = max(came, heapq.heappop(free)) + time
            heapq.heappush(free, end)
            done.append((end, number))
        coming = sorted(done)
    return [end for end, _ in sorted(coming, key=lambda each: each[1])]


def highest(intervals):
    """The most of half-open *intervals* of (begin, end, size) that overlap, by asking at each beginning."""
    return max((sum(size for begin, end, size in intervals if begin <= at < end) for at, _, _ in intervals), default=0)


DRAWS = st.one_of(
    st.integers(0, 6).map(Draw.fixed),
    st.tuples(st.integers(0, 4), st.integers(0, 5)).map(lambda ends: Draw(Shape.UNIFORM, (ends[0], ends[0] + ends[1]))),
    st.integers(1, 6).map(lambda mean: Draw(Shape.EXPONENTIAL, (mean,))),
)


@st.composite
def lines(draw, *, blocks=None, lost=False, batches=True):
    """A small line with everything that a line can have; it may deadlock."""
    count = draw(st.integers(1, 3))
    stages = []
    for k in range(count):
        batch = draw(st.sampled_from([1, 1, 2, 3])) if batches else 1
        buffer = draw(st.sampled_from([None, 0, 1, 3]))
        stages.append(
            Stage(
                f"s{k}",
                draw(DRAWS),
                machines=draw(st.integers(1, 3)),
                buffer=None if buffer is None else max(buffer, batch if batch > 1 else 0),
                batch=batch,
                per=draw(st.sampled_from(Per)),
                setup=draw(st.sampled_from([Draw.fixed(0), Draw.fixed(2)])),
                setup_when=draw(st.sampled_from(SetUp)),
                breakdown=draw(st.sampled_from([None, Breakdown(Draw.fixed(3), Draw.fixed(2))])),
                transport=draw(st.sampled_from([Draw.fixed(0), Draw.fixed(0), Draw.fixed(3)])),
                order=draw(st.sampled_from(Order)),
                output=draw(st.sampled_from([None, 0, 1, 7])),
                output_from=draw(st.sampled_from(OutputFrom)),
                input_until=draw(st.sampled_from(InputUntil)),
            )
        )
    names = [stage.name for stage in stages]
    kinds = []
    for k in range(draw(st.integers(1, 2))):
        route = draw(st.sampled_from([tuple(names), tuple(names[::-1]), (*names, names[0])])) if k or lost else tuple(names)
        kinds.append(
            ItemKind(
                f"kind{k}",
                draw(st.integers(1, 7)),
                route,
                draw(st.sampled_from([Arrivals.BURST, Arrivals.EVEN, Arrivals.POISSON])),
                Draw.fixed(draw(st.integers(0, 4))),
                start=draw(st.integers(0, 5)),
                size=draw(st.integers(0, 9)),
                when_full=draw(st.sampled_from(WhenFull)) if lost else WhenFull.WAIT,
            )
        )
    line = Line(tuple(stages), tuple(kinds), "m2", seed=draw(st.integers(0, 99)))
    if blocks if blocks is not None else draw(st.booleans()):
        least = max(stage.batch * (a + b) for kind, stage in product(kinds, stages) for a, b in product(sizes_along(line, kind), repeat=2))
        line = Line(line.stages, line.kinds, "m2", max(1, least + draw(st.integers(0, 10))), LineCapacity.BLOCK, seed=line.seed)
    return line
