"""Runs of lines against closed forms, recursions and identities: whole numbers, and equal."""

import json
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from lifecycle_sim.study.pipeline.line import Arrivals, ItemKind, Line, LineCapacity, OutputFrom, Stage
from lifecycle_sim.study.pipeline.line_draws import Draw
from lifecycle_sim.study.pipeline.line_engine import Course, run_line
from lifecycle_sim.study.pipeline.line_figures import measure_line
from lifecycle_sim.study.pipeline.line_occupancy import occupancy
from lifecycle_sim.study.pipeline.line_run import NEVER
from tests.lines import departures, exits_of_parallel, highest, lines, tandem


def test_tandem_lines_keep_to_the_closed_form():
    r"""exit_i = S + i·max(a, b), makespan S + (n-1)·max(a, b), area n·S + max(0, b-a)·n(n-1)/2, for 400 random lines."""
    source = random.Random(7)
    for _ in range(400):
        times = [source.randint(1, 9) for _ in range(source.randint(1, 5))]
        count, every = source.randint(1, 30), source.randint(0, 12)
        run = run_line(tandem(times, count, every))
        figures, total, slowest = measure_line(run), sum(times), max(times)
        exits = [total + number * max(every, slowest) for number in range(count)]
        assert run.left.tolist() == exits
        assert run.end == total + (count - 1) * max(every, slowest)
        area = count * total + max(0, slowest - every) * count * (count - 1) // 2
        assert (figures.items.area, figures.total.area, figures.residence.total) == (area, area, area)
        assert figures.items.peak == highest([(number * every, end, 1) for number, end in enumerate(exits)])


def test_tandem_lines_of_the_reference_table(shared):
    table = json.loads((shared / "data/reference/littles_law_systems.json").read_text())["tandem"]
    assert len(table) >= 50
    for row in table:
        figures = measure_line(run_line(tandem(row["stages"], row["n"], row["interarrival"])))
        told = (figures.run.end, figures.items.peak, figures.items.area)
        assert told == (row["makespan"], row["peak_wip_free_first"], row["area"])
        assert float(figures.items.average) == pytest.approx(row["avg_wip"])


def test_blocking_lines_keep_to_the_recursion():
    source = random.Random(3)
    for _ in range(200):
        times = [source.randint(0, 9) for _ in range(source.randint(1, 5))]
        buffers = [source.choice([None, 0, 1, 2]) for _ in times]
        arrive = sorted(source.randint(0, 60) for _ in range(source.randint(1, 20)))
        stages = tuple(Stage(f"s{k}", Draw.fixed(time), buffer=buffers[k]) for k, time in enumerate(times))
        kind = ItemKind("item", len(arrive), tuple(stage.name for stage in stages), Arrivals.EXPLICIT, at=tuple(arrive))
        run = run_line(Line(stages, (kind,)))
        expected = list(departures(arrive, times, buffers))
        assert run.leave.reshape(len(arrive), -1).tolist() == [row for _, row in expected]
        assert run.entered.tolist() == [entered for entered, _ in expected]
        assert run.deadlock is None


def test_parallel_machines_keep_to_the_recursion():
    source = random.Random(4)
    for _ in range(100):
        stages = [(source.randint(1, 9), source.randint(1, 4)) for _ in range(source.randint(1, 4))]
        arrive = sorted(source.randint(0, 40) for _ in range(source.randint(1, 25)))
        built = tuple(Stage(f"s{k}", Draw.fixed(time), machines) for k, (time, machines) in enumerate(stages))
        kind = ItemKind("item", len(arrive), tuple(stage.name for stage in built), Arrivals.EXPLICIT, at=tuple(arrive))
        assert sorted(run_line(Line(built, (kind,))).left.tolist()) == sorted(exits_of_parallel(arrive, stages))


@given(lines())
@settings(max_examples=150)
def test_what_is_held_is_what_items_stay(line):
    r"""∫N dt = Σ residence, and what is occupied is the sum of its pieces, whatever the line is like."""
    run = run_line(line)
    held = occupancy(run)
    figures = measure_line(run, held)
    pieces = held.pieces
    intervals = list(zip(pieces.begin.tolist(), pieces.end.tolist(), pieces.size.tolist(), strict=True))
    assert figures.total.area == sum((end - begin) * size for begin, end, size in intervals)
    assert figures.total.peak == highest(intervals)
    assert sum(each.size for each in figures.present) == figures.total.peak
    assert figures.total.area == sum(stage.level.area for stage in figures.stages) + sum(way.area for way in figures.ways.values())
    inside = np.flatnonzero(run.entered != NEVER)
    stays = [(int(run.left[item]) if run.left[item] != NEVER else run.end) - int(run.entered[item]) for item in inside]
    assert figures.items.area == sum(stays)
    if run.deadlock is None:
        assert figures.residence.total == figures.items.area
        assert figures.finished + figures.lost == len(run.left)
        assert held.total.level.tolist()[-1:] in ([], [0])
        assert figures.items.average == figures.throughput * figures.residence.mean or not run.end  # L = λW
    for stage in figures.stages:
        assert stage.idle >= 0
        assert stage.working + stage.setup + stage.repair + stage.blocked + stage.idle == stage.machines * stage.span
    if line.mode is LineCapacity.BLOCK:
        assert figures.total.peak <= line.capacity
        assert figures.fits is (run.deadlock is None)


@given(lines(lost=True))
@settings(max_examples=100)
def test_visits_come_in_order_and_machines_take_one_batch_at_a_time(line):
    run = run_line(line)
    due = run.agenda
    assert (run.deadlock is None) == bool(np.all((run.left != NEVER) | run.lost))
    for item in range(len(run.left)):
        visits = range(due.first[item], due.first[item + 1])
        times = [
            int(time)
            for visit in visits
            for time in (run.enter[visit], run.start[visit], run.done[visit], run.made[visit], run.leave[visit])
        ]
        known = [time for time in times if time != NEVER]
        assert known == sorted(known)
        assert NEVER not in times[: len(known)]
        assert not run.lost[item] or not known
    jobs = run.jobs
    for stage in range(len(line.stages)):
        places = line.stages[stage].buffer
        if places is not None and line.mode is LineCapacity.BLOCK and line.stages[stage].output_from is OutputFrom.START:
            places += line.stages[stage].machines  # an idle machine may hold an item whose output has no room yet
        for machine in range(line.stages[stage].machines):
            mine = np.flatnonzero((jobs.stage == stage) & (jobs.machine == machine))
            assert np.all(jobs.release[mine][:-1] <= jobs.begin[mine][1:])
            assert np.all(jobs.release[mine][:-1] != NEVER)
        if places is not None:
            here = np.flatnonzero((due.stage == stage) & (run.enter != NEVER))
            start = np.where(run.start[here] == NEVER, run.end, run.start[here])
            assert highest(list(zip(run.enter[here].tolist(), start.tolist(), [1] * len(here), strict=True))) <= places


def test_a_capacity_of_so_many_items_keeps_to_the_recursion():
    """With room for w items of one size, item i enters when it has come and item i - w has left."""
    source = random.Random(5)
    for _ in range(200):
        times = [source.randint(0, 9) for _ in range(source.randint(1, 4))]
        arrive, room = sorted(source.randint(0, 40) for _ in range(source.randint(1, 20))), source.randint(1, 5)
        stages = tuple(Stage(f"s{k}", Draw.fixed(time)) for k, time in enumerate(times))
        kind = ItemKind("item", len(arrive), tuple(stage.name for stage in stages), Arrivals.EXPLICIT, at=tuple(arrive), size=3)
        run = run_line(Line(stages, (kind,), "kg", 3 * room + 2, LineCapacity.BLOCK))
        free, left = [0] * len(times), []
        for number, came in enumerate(arrive):
            at = max(came, left[number - room]) if number >= room else came
            assert run.entered[number] == at
            for k, time in enumerate(times):
                at = free[k] = max(at, free[k]) + time
            left.append(at)
        assert run.left.tolist() == left


@given(lines(blocks=True))
@settings(max_examples=80)
def test_the_levels_that_block_are_those_that_are_told(line):
    """What the run counts for itself, to know who has room, is what its pieces add up to at the end."""
    course = Course(line, 0)
    run = course.play()
    held = occupancy(run).pieces
    there = held.held.astype(bool)
    assert course.level == sum(held.size[there].tolist())
    for station in course.stations:
        inside = there & (
            (held.place == station.index) | ((held.place >= len(line.stages)) & (run.agenda.stage[held.visit] == station.index))
        )
        assert station.level == sum(held.size[inside].tolist())


@given(lines())
@settings(max_examples=40)
def test_nothing_starts_late(line):
    """While a machine is idle and a whole batch waits, it starts, unless its output has no room."""
    run = run_line(line)
    if line.mode is LineCapacity.BLOCK or run.deadlock is not None:
        return
    for number, stage in enumerate(line.stages):
        here = np.flatnonzero(run.agenda.stage == number)
        mine = np.flatnonzero(run.jobs.stage == number)
        for at in np.unique(run.start[here]).tolist():
            before = at - 1
            waiting = int(((run.enter[here] <= before) & (run.start[here] > before)).sum())
            busy = int(((run.jobs.begin[mine] <= before) & (run.jobs.release[mine] > before)).sum())
            assert waiting < stage.batch or busy == stage.machines


def test_sizes_beyond_64_bits_stay_exact():
    line = Line((Stage("s", Draw.fixed(10**6)),), (ItemKind("item", 3, ("s",), size=2**62 - 1),), "B")
    figures = measure_line(run_line(line))
    assert figures.total.peak == 3 * (2**62 - 1)
    assert figures.total.area == (2**62 - 1) * 10**6 * (1 + 2 + 3)
    assert figures.total.average == Fraction((2**62 - 1) * 6, 3)
