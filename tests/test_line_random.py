"""Lines in which times are drawn: queues with known answers, draws that depend on nothing else, intervals that mean what they say."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from statistics import mean

import numpy as np
import pytest

from lifecycle_sim.events import Clock
from lifecycle_sim.study.pipeline.line import Arrivals, Breakdown, ItemKind, Line, Stage, WhenFull
from lifecycle_sim.study.pipeline.line_answers import answer_line, estimate, student, what_if_line
from lifecycle_sim.study.pipeline.line_draws import Draw, Shape, source_for
from lifecycle_sim.study.pipeline.line_engine import run_line
from lifecycle_sim.study.pipeline.line_figures import measure_line

SECOND = 10**9
COUNT, MANY, RUNS = 5000, 20_000, 8


def queue(row, count=COUNT):
    """A line of one stage: *c* machines, Poisson arrivals, exponential or fixed service, K places in all where the row has K."""
    service = Draw.fixed(SECOND) if "/D/" in row["system"] else Draw(Shape.EXPONENTIAL, (SECOND // row["mu"],))
    places = row["K"] - row["c"] if "K" in row else None
    gap = round(SECOND / row["lam"])
    kind = ItemKind(
        "customer", count, ("clerk",), Arrivals.POISSON, Draw.fixed(gap), when_full=WhenFull.WAIT if places is None else WhenFull.LOST
    )
    stage = Stage("clerk", service, machines=row["c"], buffer=places)
    warmup, horizon = count * gap // 10, count * gap * 9 // 10
    return Line((stage,), (kind,), clock=Clock.NANOSECONDS, seed=11, replications=RUNS, warmup=warmup, horizon=horizon)


def test_queues_agree_with_theory(shared):
    """Averages over eight runs, within the 99.9 % interval that the runs give themselves, and that within 25 %, on every row of the table.

    A run has 5000 customers, or 20,000 where nearly all of the time is taken, for such queues forget slowly.
    """
    rows = json.loads((shared / "data/reference/littles_law_systems.json").read_text())["analytic"]
    assert {row["system"] for row in rows} == {"M/M/1", "M/M/2", "M/M/3", "M/M/8", "M/D/1", "M/M/1/5", "M/M/1/4"}
    wide = student(RUNS - 1, 0.999) / student(RUNS - 1, 0.95)
    for row in rows:
        count = COUNT if row["rho"] < 0.85 or "K" in row else MANY
        answer = answer_line(queue(row, count))
        inside = answer.estimates["items_in_line"]
        assert abs(inside.mean - row["L"]) <= wide * inside.half, row
        assert inside.half <= 0.25 * row["L"], row
        stay = answer.estimates["residence"]
        assert abs(stay.mean / SECOND - row["W"]) <= wide * stay.half / SECOND, row
        busy = answer.estimates["utilisation clerk"]
        offered = row.get("lam_eff", row["lam"]) / row["mu"] / row["c"]
        assert abs(busy.mean - offered) <= wide * busy.half, row
        if "P_block" in row:
            lost = answer.estimates["lost"]
            assert abs(lost.mean / count - row["P_block"]) <= wide * lost.half / count, row
        assert answer.first.items.peak >= 2 * row["L"] or "K" in row


@pytest.mark.parametrize(
    ("draw", "mean_is", "spread"),
    [
        (Draw(Shape.EXPONENTIAL, (1000,)), 1000, 1000),
        (Draw(Shape.UNIFORM, (10, 30)), 20, (21**2 - 1) ** 0.5 / 12**0.5),
        (Draw(Shape.TRIANGULAR, (0, 300, 600)), 300, 600 / 24**0.5),
        (Draw(Shape.NORMAL, (1000, 50)), 1000, 50),
        (Draw(Shape.LOGNORMAL, (1000, 300)), 1000, 300),
        (Draw(Shape.ERLANG, (1000,), (4,)), 1000, 500),
        (Draw(Shape.CHOICE, (10, 50), (3, 1)), 20, 300**0.5),
        (Draw.fixed(7), 7, 0),
    ],
    ids=lambda value: str(getattr(value, "shape", "")),
)
def test_distributions_have_their_means_and_deviations(draw, mean_is, spread):
    times = draw.sample(source_for(0, 0, "x"), 40_000)
    assert times.dtype == np.int64
    assert draw.mean == pytest.approx(mean_is)
    assert times.mean() == pytest.approx(mean_is, rel=0.02)
    assert times.std() == pytest.approx(spread, rel=0.03)


def test_what_is_drawn_for_a_stage_does_not_depend_on_the_others():
    def line(**more):
        stages = [Stage("a", Draw(Shape.UNIFORM, (1, 9)), **more), Stage("b", Draw(Shape.UNIFORM, (1, 9)))]
        return Line(tuple(stages), (ItemKind("item", 30, ("a", "b"), Arrivals.POISSON, Draw.fixed(4)),), seed=5)

    one, two = run_line(line()), run_line(line(machines=2))
    assert one.agenda.work.tolist() == two.agenda.work.tolist()
    assert one.agenda.arrive.tolist() == two.agenda.arrive.tolist()
    assert one.left.tolist() != two.left.tolist()
    assert run_line(line(), replication=1).agenda.work.tolist() != one.agenda.work.tolist()


SCENARIO = """
replications = 6
seed = 3
[[item]]
name = "job"
count = 40
arrivals = "poisson"
every = 4
[[stage]]
name = "cut"
time = { draw = "exponential", mean = 3 }
breakdown = { every = { draw = "exponential", mean = 20 }, repair = 5 }
[[stage]]
name = "paint"
time = 3
"""


def test_answers_are_the_same_whoever_works_them_out():
    def told(**more):
        return [
            (each.name, each.estimates, each.first.total) for each in what_if_line(SCENARIO, ["cut.machines=2", "paint.order=lifo"], **more)
        ]

    alone = told()
    with ThreadPoolExecutor(3) as pool:
        assert told(executor=pool) == alone
    assert told(workers=2) == alone
    assert [name for name, _, _ in alone] == ["as written", "cut.machines=2", "paint.order=lifo"]


def test_a_second_machine_helps_and_the_order_changes_no_sum():
    written, machine, order = what_if_line(SCENARIO, ["cut.machines=2", "paint.order=lifo"])
    assert machine.estimates["residence"].mean < written.estimates["residence"].mean
    assert order.first.residence.total == written.first.residence.total
    assert order.first.residence.high > written.first.residence.high


def test_repairs_come_after_so_much_work():
    stage = Stage("a", Draw.fixed(4), breakdown=Breakdown(Draw.fixed(10), Draw.fixed(3)))
    run = run_line(Line((stage,), (ItemKind("item", 6, ("a",)),)))
    assert run.jobs.repair.tolist() == [0, 0, 3, 0, 0, 3]
    figures = measure_line(run)
    assert (figures.stages[0].working, figures.stages[0].repair, run.end) == (24, 6, 30)


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980), (1000, 1.962)],
)
def test_students_t_is_that_of_the_tables(freedom, value):
    assert student(freedom, 0.95) == pytest.approx(value, abs=6e-4)


def test_intervals_hold_the_mean_as_often_as_they_say():
    source = random.Random(1)
    held = 0
    for _ in range(1000):
        found = estimate([source.gauss(5, 2) for _ in range(5)])
        held += abs(found.mean - 5) <= found.half
    assert 0.93 <= held / 1000 <= 0.97
    assert estimate([4.0]).half is None


def test_a_shop_with_an_average_of_four_needs_room_for_many_more():
    peaks = [
        measure_line(run_line(queue({"system": "M/M/1", "lam": 0.8, "mu": 1, "c": 1, "rho": 0.8}), number)).items.peak
        for number in range(3)
    ]
    assert mean(peaks) > 16
