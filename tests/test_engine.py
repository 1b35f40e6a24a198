"""The engine against a plain second implementation, and the rules of docs/events.md one by one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.program import (
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
    problems,
    replay_through_engine,
    run,
    run_scenario,
)
from tests.plain_program import intervals, level_at, levels_of_events, peak_of_intervals

ROOT = Path(__file__).resolve().parents[1]


def levels(trace: Trace) -> list[int]:
    """The level after each event, in Python integers."""
    events = trace.devices[0].events
    found, level = [], 0
    for kind, size in zip(events.kind.tolist(), events.size.tolist(), strict=True):
        level += size if kind == Kind.ALLOC else -size if kind == Kind.FREE else 0
        found.append(level)
    return found


def story(trace: Trace) -> list[tuple[int, str, str]]:
    """(time, kind, label) of each event."""
    events = trace.devices[0].events
    return [
        (int(time), Kind(kind).name, str(trace.label(label)))
        for time, kind, label in zip(events.time, events.kind, events.label, strict=True)
    ]


def programs_run(text: str, **parameters: int) -> Trace:
    return run_scenario(text, parameters)


# Events at known times


def test_the_last_name_frees_whichever_it_is() -> None:
    trace = run_scenario("""
event = [
    { at = 0, alloc = "a", size = "8 B", category = "parameter", owner = "net" },
    { at = 1, share = "a", as = "b" },
    { at = 2, share = "b", as = "c" },
    { at = 3, free = "a" },
    { at = 4, free = "c" },
    { at = 5, alloc = "a" },
    { at = 6, free = "b" },
]
""")
    assert story(trace) == [
        (0, "ALLOC", "a"),
        (1, "SHARE", "b"),
        (2, "SHARE", "c"),
        (3, "RELEASE", "a"),
        (4, "RELEASE", "c"),
        (5, "ALLOC", "a"),
        (6, "FREE", "a"),
    ]
    assert levels(trace) == [8, 8, 8, 8, 8, 16, 8]
    device = trace.devices[0]
    assert device.events.address.tolist() == [0, 0, 0, 0, 0, 1, 0], "a new generation has a number of its own"
    assert device.basis is Basis.PAYLOAD
    assert trace.evidence is Evidence.SIMULATED
    assert trace.clock is Clock.TICKS
    assert (trace.format, device.start, device.capacity) == ("scenario", 0, None)
    assert [str(frame) for stack in device.events.stack[:1] for frame in trace.stacks.frames_of(int(stack))] == ["scenario net"]


def test_two_orders_of_the_same_instant() -> None:
    #   a [0────3)        frees first:  10 │ 10    peak 10
    #   b       [3────6)  allocs first: 10 │ 20    peak 20
    text = """
same_instant = "RULE"
event = [
    { at = 3, alloc = "b", size = "10 B" },
    { at = 0, alloc = "a", size = "10 B" },
    { at = 3, free = "a" },
    { at = 6, free = "b" },
]
"""
    frees_first = run_scenario(text.replace("RULE", "frees-first"))
    allocs_first = run_scenario(text.replace("RULE", "allocs-first"))
    assert levels(frees_first) == [10, 0, 10, 0]
    assert levels(allocs_first) == [10, 20, 10, 0]
    assert frees_first.settings["same_instant"] == "frees-first"
    assert allocs_first.settings["same_instant"] == "allocs-first"


def test_handing_a_storage_over_at_one_instant() -> None:
    text = """
same_instant = "RULE"
event = [
    { at = 0, alloc = "a", size = "10 B" },
    { at = 3, free = "a" },
    { at = 3, share = "a", as = "b" },
]
"""
    with pytest.raises(ScenarioError, match=r"went at 3 already.*allocs-first"):
        run_scenario(text.replace("RULE", "frees-first"))
    assert levels(run_scenario(text.replace("RULE", "allocs-first"))) == [10, 10, 10]


@st.composite
def event_programs(draw: st.DrawFn) -> Program:
    """Events without problems: at each time some live names go and some new ones come, in any order as written."""
    rule = draw(st.sampled_from(SameInstant))
    live: set[str] = set()
    storages, events = [], []
    time = 0
    for number in range(draw(st.integers(1, 12))):
        time += draw(st.integers(1, 3))
        going = draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
        coming = [f"s{number}_{k}" for k in range(draw(st.integers(0, 3)))]
        kept = sorted(live - going | set(coming))
        sharing = draw(st.lists(st.sampled_from(kept), max_size=2)) if kept else []
        aliases = [f"a{number}_{k}" for k in range(len(sharing))]
        storages += [Storage(name, draw(st.integers(0, 2**62))) for name in coming]
        group = [PlannedEvent(time, Kind.ALLOC, name) for name in coming]
        group += [PlannedEvent(time, Kind.FREE, name) for name in sorted(going)]
        group += [PlannedEvent(time, Kind.SHARE, name, alias) for name, alias in zip(sharing, aliases, strict=True)]
        events += draw(st.permutations(group))
        live = (live - going) | set(coming) | set(aliases)
    shuffled = draw(st.permutations(range(len(events))))
    # Only the order within an instant matters: whole instants may stand anywhere in the file.
    events = sorted(events, key=lambda event: shuffled[event.at % len(shuffled)]) if events else events
    storages.append(Storage("always", 1))
    events.append(PlannedEvent(0, Kind.ALLOC, "always"))
    return Program(storages=tuple(storages), events=tuple(events), same_instant=rule)


@given(event_programs())
def test_events_agree_with_the_plain_implementation(program: Program) -> None:
    trace = run(program)
    assert list(zip(trace.devices[0].events.time.tolist(), levels(trace), strict=True)) == levels_of_events(program)
    assert replay_through_engine(trace.devices[0]) == tuple(levels(trace))


def test_levels_beyond_64_bits_are_exact() -> None:
    storages = tuple(Storage(f"s{i}", 2**63 - 1) for i in range(4))
    program = Program(storages=storages, events=tuple(PlannedEvent(2**62 + i, Kind.ALLOC, s.name) for i, s in enumerate(storages)))
    trace = run(program)
    assert replay_through_engine(trace.devices[0])[-1] == 4 * (2**63 - 1)
    assert trace.devices[0].events.time.tolist()[-1] == 2**62 + 3, "no float has touched the clock"


def test_the_owner_is_the_one_stated_else_what_allocates_at_its_line() -> None:
    trace = run_scenario("""
storage = [
    { name = "w", size = "1 B", lives = "given" },
    { name = "x", size = "1 B", owner = "fc1" },
    { name = "y", size = "1 B" },
]
operator = [
    { name = "f", duration = 1, reads = ["w"], writes = ["x", "y"], temporaries = ["1 B"] },
]
""")
    stacks = [trace.stacks.frames_of(int(stack)) for stack in trace.devices[0].events.stack[:4]]
    assert [str(frame) for (frame,) in stacks] == ["scenario:3 w", "scenario fc1", "scenario:8 f", "scenario:8 f"]
    trace = run_scenario("event = [\n{ at = 0, alloc = 'a', size = '1 B' },\n]\n")
    assert [str(frame) for frame in trace.stacks.frames] == ["scenario:2 a"]


# Operators


def chain(*operators: Operator, **keys: object) -> Program:
    names = dict.fromkeys(name for operator in operators for name in (*operator.reads, *operator.writes, *operator.frees))
    storages = keys.pop("storages", tuple(Storage(name, 10) for name in names))
    streams = tuple(dict.fromkeys(operator.stream for operator in operators))
    return Program(storages=storages, operators=operators, streams=streams, **keys)  # type: ignore[arg-type]


def test_an_operator_allocates_at_its_start_and_the_last_reader_frees_at_its_end() -> None:
    #   f [0──2) writes x     x [0───────5)
    #   g     [2───5) → y     y     [2───6)
    #   h          [5─6)
    trace = run(
        chain(
            Operator("f", 2, writes=("x",), temporaries=(1, 2)),
            Operator("g", 3, reads=("x",), writes=("y",)),
            Operator("h", 1, reads=("y",)),
        )
    )
    assert story(trace) == [
        (0, "ALLOC", "x"),
        (0, "ALLOC", "f.temporary0"),
        (0, "ALLOC", "f.temporary1"),
        (2, "FREE", "f.temporary0"),
        (2, "FREE", "f.temporary1"),
        (2, "ALLOC", "y"),
        (5, "FREE", "x"),
        (6, "FREE", "y"),
    ]
    assert [(span.name, span.start, span.stop) for span in trace.devices[0].spans] == [("f", 0, 5), ("g", 5, 7), ("h", 7, 8)]
    assert trace.settings["makespan"] == 6


def test_two_orders_of_the_same_instant_for_operators() -> None:
    program = chain(
        Operator("f", 1, writes=("x",)), Operator("g", 1, reads=("x",), writes=("y",)), Operator("h", 1, reads=("y",), writes=("z",))
    )
    assert max(levels(run(program))) == 20
    assert max(levels(run(replace(program, same_instant=SameInstant.ALLOCS_FIRST)))) == 30


def test_streams_run_side_by_side_and_wait_for_inputs() -> None:
    trace = run(
        chain(
            Operator("load", 5, "copy", writes=("x",)),
            Operator("warm", 1, "compute", writes=("t",)),
            Operator("use", 2, "compute", reads=("x", "t")),
            Operator("next", 1, "copy", writes=("x2",), after=("warm",)),
        )
    )
    assert [(time, label) for time, kind, label in story(trace) if kind == "ALLOC"] == [(0, "x"), (0, "t"), (5, "x2")]
    assert trace.settings["makespan"] == 7
    assert trace.devices[0].events.stream.tolist() == [0, 1, 0, 0, 0, 1], "a free carries the stream of its allocation"


def test_a_writer_in_place_waits_for_the_readers_before_it() -> None:
    trace = run(
        Program(
            storages=(Storage("w", 10, lives=Lives.GIVEN), Storage("t", 1)),
            operators=(Operator("forward", 5, "a", reads=("w",)), Operator("update", 1, "b", writes=("w", "t"))),
            streams=("a", "b"),
        )
    )
    assert story(trace) == [(0, "ALLOC", "w"), (5, "ALLOC", "t"), (6, "FREE", "t")]


def test_steps_lazily_created_state_and_explicit_frees() -> None:
    program = Program(
        storages=(
            Storage("w", 100, lives=Lives.GIVEN),
            Storage("act", 50),
            Storage("grad", 100, lives=Lives.KEPT),
            Storage("m", 200, lives=Lives.KEPT),
        ),
        operators=(
            Operator("zero_grad", 0, frees=("grad",), steps=InSteps.LATER),
            Operator("warm_up", 3, temporaries=(7,), steps=InSteps.FIRST),
            Operator("forward", 2, reads=("w",), writes=("act",), phase="forward"),
            Operator("backward", 4, reads=("act", "w"), writes=("grad",), phase="backward"),
            Operator("adam", 1, reads=("grad",), writes=("m", "w"), phase="optimizer"),
        ),
        steps=3,
    )
    trace = run(program)
    device, level = trace.devices[0], levels(trace)
    steps = [span for span in device.spans if span.kind == "step"]
    assert [span.name for span in steps] == ["step 1", "step 2", "step 3"]
    assert [level[span.stop - 1] for span in steps] == [400, 400, 400]
    assert [max(level[span.start : span.stop]) for span in steps] == [400, 450, 450], "the first step runs without optimizer state"
    assert [b.start for b in steps[1:]] == [a.stop for a in steps[:-1]]
    assert sum(1 for _, kind, label in story(trace) if label == "m" and kind == "ALLOC") == 1
    assert sum(1 for _, kind, label in story(trace) if label == "grad" and kind == "ALLOC") == 3
    assert [span.name for span in device.spans if span.kind == "phase"] == ["forward", "backward", "optimizer"] * 3
    assert trace.settings["makespan"] == 3 + 3 * 7


def test_further_names_in_operators() -> None:
    program = Program(
        storages=(Storage("x", 10), Storage("view", shares="x"), Storage("y", 5)),
        operators=(
            Operator("make", 1, writes=("x",)),
            Operator("reshape", 0, reads=("x",), writes=("view",)),
            Operator("use", 1, reads=("view",), writes=("y",)),
        ),
    )
    assert [(kind, label) for _, kind, label in story(run(program))] == [
        ("ALLOC", "x"),
        ("SHARE", "view"),
        ("RELEASE", "x"),
        ("ALLOC", "y"),
        ("FREE", "x"),
        ("FREE", "y"),
    ]


def test_making_a_further_name_waits_for_the_storage_and_keeps_it() -> None:
    program = Program(
        storages=(Storage("x", 10), Storage("view", shares="x")),
        operators=(
            Operator("make", 3, "a", writes=("x",)),
            Operator("view", 1, "b", writes=("view",)),
            Operator("use", 1, "b", reads=("view",)),
        ),
        streams=("a", "b"),
    )
    assert story(run(program)) == [(0, "ALLOC", "x"), (3, "SHARE", "view"), (4, "RELEASE", "x"), (5, "FREE", "x")]


def test_what_ends_at_one_instant_goes_in_program_order_whoever_began_first() -> None:
    program = Program(
        operators=(
            Operator("late", 1, "a", temporaries=(1,), after=("gate",)),
            Operator("early", 3, "b", temporaries=(2,)),
            Operator("gate", 2, "c"),
        ),
        streams=("a", "b", "c"),
    )
    assert [(time, label) for time, kind, label in story(run(program)) if kind == "FREE"] == [(3, "late.temporary"), (3, "early.temporary")]


@st.composite
def operator_programs(draw: st.DrawFn, shortest: int) -> Program:
    """Operators without problems: each reads what is there and writes new names, or kept ones again."""
    given = [Storage(f"w{k}", draw(st.integers(0, 100)), lives=Lives.GIVEN) for k in range(draw(st.integers(0, 2)))]
    kept = [Storage(f"k{k}", draw(st.integers(0, 100)), lives=Lives.KEPT) for k in range(draw(st.integers(0, 2)))]
    streams = ("a", "b", "c")[: draw(st.integers(1, 3))]
    readable = [storage.name for storage in given]
    storages, operators = [*given, *kept], []
    for number in range(draw(st.integers(1, 8))):
        new = [Storage(f"s{number}_{k}", draw(st.integers(0, 100))) for k in range(draw(st.integers(0, 2)))]
        again = draw(st.sets(st.sampled_from([*readable, *(storage.name for storage in kept)]), max_size=2)) if readable or kept else set()
        reads = draw(st.sets(st.sampled_from(readable), max_size=3)) if readable else set()
        operators.append(
            Operator(
                f"o{number}",
                draw(st.integers(shortest, 4)),
                draw(st.sampled_from(streams)),
                reads=tuple(sorted(reads)),
                writes=tuple(sorted(again) + [storage.name for storage in new]),
                temporaries=tuple(draw(st.lists(st.integers(0, 100), max_size=2))),
                after=tuple(draw(st.sets(st.sampled_from([o.name for o in operators])))) if operators and draw(st.booleans()) else (),
            )
        )
        storages += new
        readable += [name for name in operators[-1].writes if name not in readable]
    if kept and kept[0].name in readable and draw(st.booleans()):
        operators.insert(0, Operator("zero", draw(st.integers(shortest, 2)), streams[0], frees=(kept[0].name,), steps=InSteps.LATER))
        if not any(kept[0].name in o.reads for o in operators[1:2]) and problems(
            Program(tuple(storages), (), tuple(operators), streams, 3)
        ):
            operators.pop(0)
    program = Program(tuple(storages), (), tuple(operators), streams, draw(st.sampled_from([None, 1, 3])))
    if problems(program):  # the zeroing took away what the step reads first
        program = replace(program, operators=tuple(o for o in operators if o.name != "zero"))
    return replace(program, same_instant=draw(st.sampled_from(SameInstant)))


@settings(deadline=None)
@given(operator_programs(shortest=1))
def test_operators_agree_with_the_plain_implementation(program: Program) -> None:
    trace = run(program)
    found, level = intervals(program), levels(trace)
    times = trace.devices[0].events.time.tolist()
    assert max(level, default=0) == peak_of_intervals(found, program.same_instant)
    for index, time in enumerate(times):
        if index + 1 == len(times) or times[index + 1] > time:
            assert level[index] == level_at(found, time)
    assert times == sorted(times)
    assert replay_through_engine(trace.devices[0]) == tuple(level)


@settings(deadline=None)
@given(operator_programs(shortest=0))
def test_operators_that_take_no_time_leave_the_same_levels(program: Program) -> None:
    trace = run(program)
    found, level = intervals(program), levels(trace)
    times = trace.devices[0].events.time.tolist()
    for index, time in enumerate(times):
        if index + 1 == len(times) or times[index + 1] > time:
            assert level[index] == level_at(found, time)


@settings(deadline=None)
@given(operator_programs(shortest=0), st.integers(0, 500))
def test_room_to_wait_for_is_never_passed_and_a_line_changes_nothing(program: Program, size: int) -> None:
    free = run(program)
    line = run(replace(program, capacity=Capacity(size)))
    assert line.devices[0].events == free.devices[0].events
    try:
        waiting: Trace | None = run(replace(program, capacity=Capacity(size, CapacityMode.WAIT)))
    except ScenarioError:
        waiting = None
    if waiting is None:
        assert max(levels(free), default=0) > size, "refused for no reason"
        return
    assert max(levels(waiting), default=0) <= size
    assert len(waiting.devices[0]) == len(free.devices[0])
    if max(levels(free), default=0) <= size:
        assert waiting.devices[0].events == free.devices[0].events


_NAMES = [f"n{k}" for k in range(5)]


@st.composite
def wild_programs(draw: st.DrawFn) -> Program:
    """Any operators over any storages and further names; most have problems."""
    storages = tuple(
        Storage(
            name,
            draw(st.integers(0, 9)),
            lives=draw(st.sampled_from([Lives.STEP, Lives.STEP, Lives.KEPT, Lives.GIVEN])),
            shares=draw(st.sampled_from([None, *_NAMES[:k]])) if k else None,
        )
        for k, name in enumerate(_NAMES)
    )
    some = st.lists(st.sampled_from(_NAMES), max_size=2, unique=True).map(tuple)
    operators = tuple(
        Operator(
            f"o{number}",
            draw(st.integers(0, 2)),
            draw(st.sampled_from("ab")),
            reads=draw(some),
            writes=draw(some),
            frees=draw(st.one_of(st.just(()), some)),
            temporaries=tuple(draw(st.lists(st.integers(0, 5), max_size=1))),
            after=tuple(draw(st.lists(st.sampled_from(["o0", "o1", "o2"]), max_size=1))) if draw(st.booleans()) else (),
            steps=draw(st.sampled_from(InSteps)),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    return Program(
        storages, (), operators, ("a", "b"), draw(st.sampled_from([None, 1, 4])), same_instant=draw(st.sampled_from(SameInstant))
    )


@settings(max_examples=600, deadline=None)
@given(wild_programs())
def test_a_program_without_problems_runs_and_leaves_only_what_is_kept(program: Program) -> None:
    if problems(program):
        return
    trace = run(program)
    level = levels(trace)
    assert min(level, default=0) >= 0
    named = {storage.name for storage in program.storages if storage.lives is not Lives.STEP}
    names: dict[int, int] = {}
    events = trace.devices[0].events
    for kind, number in zip(events.kind.tolist(), events.address.tolist(), strict=True):
        names[number] = names.get(number, 0) + {Kind.ALLOC: 1, Kind.SHARE: 1, Kind.RELEASE: -1, Kind.FREE: -1}[Kind(kind)]
        assert names[number] >= 0
        assert (kind == Kind.FREE) == (names[number] == 0)
    assert sum(names.values()) <= len(named)


def test_spans_hold_what_their_operator_did() -> None:
    program = chain(Operator("f", 1, "a", writes=("x",)), Operator("g", 4, "b", writes=("y",)), Operator("h", 1, "a", reads=("x",)))
    device = run(program).devices[0]
    assert [(span.name, span.start, span.stop) for span in device.spans] == [("f", 0, 2), ("g", 1, 4), ("h", 2, 3)]


# Capacity

BURST = """
[parameters]
jobs = 8
[capacity]
size = "16 GiB"
mode = "MODE"
[[stream]]
repeat = "jobs"
name = "line{i}"
[[operator]]
repeat = "jobs"
name = "job{i}"
stream = "line{i}"
duration = "1 s"
temporaries = ["4 GiB"]
"""


def test_a_line_is_not_room_to_wait_for() -> None:
    line, wait = programs_run(BURST.replace("MODE", "line")), programs_run(BURST.replace("MODE", "wait"))
    gib = 2**30
    assert (max(levels(line)), line.settings["makespan"], line.settings["waited"]) == (32 * gib, 10**9, {})
    assert (max(levels(wait)), wait.settings["makespan"]) == (16 * gib, 2 * 10**9)
    assert wait.settings["waited"] == {f"job{i}": 10**9 for i in range(4, 8)}
    assert line.devices[0].capacity == wait.devices[0].capacity == 16 * gib
    assert (line.settings["capacity_mode"], wait.settings["capacity_mode"]) == ("line", "wait")


def test_many_waiting_jobs_are_served_without_looking_at_each_of_them_again() -> None:
    trace = programs_run(BURST.replace("MODE", "wait"), jobs=8000)
    assert trace.settings["makespan"] == 2000 * 10**9


def test_one_without_room_lets_the_next_ones_try() -> None:
    program = Program(
        operators=(
            Operator("first", 3, "a", temporaries=(6,)),
            Operator("large", 1, "b", temporaries=(8,)),
            Operator("small", 1, "c", temporaries=(4,)),
        ),
        streams=("a", "b", "c"),
        capacity=Capacity(10, CapacityMode.WAIT),
    )
    assert [(time, label) for time, kind, label in story(run(program)) if kind == "ALLOC"] == [
        (0, "first.temporary"),
        (0, "small.temporary"),
        (3, "large.temporary"),
    ]


def test_a_deadlock_names_who_waits_for_what() -> None:
    program = Program(
        storages=(Storage("x", 8), Storage("y", 8), Storage("x2", 4), Storage("y2", 4)),
        operators=(
            Operator("fx", 1, "a", writes=("x",)),
            Operator("fy", 1, "b", writes=("y",)),
            Operator("gx", 1, "a", reads=("x",), writes=("x2",)),
            Operator("gy", 1, "b", reads=("y",), writes=("y2",)),
        ),
        streams=("a", "b"),
        capacity=Capacity(18, CapacityMode.WAIT),
    )
    with pytest.raises(ScenarioError) as caught:
        run(program)
    assert caught.value.problems == (
        "deadlock at 1 tick: nothing runs, and no operator that is ready has room",
        "'gx' waits for 4 B; 16 of 18 B are taken",
        "'gy' waits for 4 B; 16 of 18 B are taken",
        "'x' holds 8 B until 'gx' has ended",
        "'y' holds 8 B until 'gy' has ended",
    )
    assert max(levels(run(replace(program, capacity=Capacity(20, CapacityMode.WAIT))))) == 20


def test_more_than_the_whole_capacity_is_said() -> None:
    program = Program(operators=(Operator("f", 1, temporaries=(6, 6)),), capacity=Capacity(10, CapacityMode.WAIT))
    with pytest.raises(ScenarioError, match="'f' needs 12 B at once: more than the whole capacity; 0 of 10 B are taken"):
        run(program)


def test_with_allocations_first_one_that_has_to_wait_starts_after_the_frees() -> None:
    program = Program(
        operators=(Operator("f", 2, temporaries=(6,)), Operator("g", 2, temporaries=(6,))),
        capacity=Capacity(10, CapacityMode.WAIT),
        same_instant=SameInstant.ALLOCS_FIRST,
    )
    trace = run(program)
    assert max(levels(trace)) == 6
    assert trace.settings["waited"] == {}, "within the instant no time passes"


# A recorded trace through the engine


@given(
    st.lists(st.tuples(st.sampled_from(list(Kind)), st.integers(0, 2**40), st.integers(0, 5)), max_size=60),
    st.one_of(st.none(), st.integers(0, 2**40)),
)
def test_a_recorded_trace_gives_the_levels_that_numpy_gives(rows: list[tuple[Kind, int, int]], start: int | None) -> None:
    kind, size, time = ([row[k] for row in rows] for k in range(3))
    events = Events.of(kind, [0] * len(rows), size, time=time)
    sign = np.zeros(len(Kind), np.int64)
    sign[[Kind.ALLOC, Kind.FREE, Kind.FREE_COMPLETED]] = 1, -1, -1
    expected = (start or 0) + np.cumsum(sign[events.kind] * events.size)
    device = DeviceTrace("cuda:0", events, Basis.REQUESTED, start=start)
    assert replay_through_engine(device) == tuple(expected.tolist())


# Determinism, and the graph


def test_the_same_bytes_out_whatever_the_hash_seed() -> None:
    code = (
        "from lifecycle_sim.program import run_scenario; import hashlib\n"
        "trace = run_scenario('scenarios/mlp_step.toml'); e = trace.devices[0].events\n"
        "text = repr((trace.labels, trace.stacks.frames, trace.devices[0].spans, dict(trace.settings)))\n"
        "columns = [getattr(e, name).tobytes() for name in e.__dataclass_fields__]\n"
        "print(hashlib.sha256(text.encode() + b''.join(columns)).hexdigest())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(found) == 1


def test_a_cycle_is_told_and_the_graph_says_why() -> None:
    program = chain(
        Operator("f", 1, "a", after=("g",)), Operator("g", 1, "b", reads=("x",)), storages=(Storage("x", 1, lives=Lives.GIVEN),)
    )
    assert problems(program) == []
    graph = dependency_graph(program)
    assert list(graph.edges(data="why")) == [("g", "f", "after")]
    assert run(program).settings["makespan"] == 2
    looped = replace(program, operators=(program.operators[0], replace(program.operators[1], after=("f",))))
    assert problems(looped) == [
        "operators wait for each other in a cycle: 'f' waits for 'g' (after), 'g' waits for 'f' (after)"
    ] or problems(looped) == ["operators wait for each other in a cycle: 'g' waits for 'f' (after), 'f' waits for 'g' (after)"]


def test_a_long_chain_is_no_trouble() -> None:
    operators = tuple(Operator(f"f{i}", 1, reads=(f"x{i - 1}",) if i else (), writes=(f"x{i}",)) for i in range(5000))
    trace = run(chain(*operators))
    assert max(levels(trace)) == 20
    assert len(trace) == 10_000


def test_neither_simpy_nor_networkx_is_imported_before_it_is_needed() -> None:
    code = "import sys, lifecycle_sim.program; print([m for m in ('simpy', 'networkx', 'torch', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
