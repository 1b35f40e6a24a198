"""What a stage can do, by hand: each line's story is short enough to be followed with a finger."""

import pytest

from lifecycle_sim.replay import replay_device
from lifecycle_sim.replay.averages import average
from lifecycle_sim.sources.native import read_jsonl, write_jsonl
from lifecycle_sim.study.pipeline.line_engine import run_line
from lifecycle_sim.study.pipeline.line_figures import measure_line
from lifecycle_sim.study.pipeline.line_file import load_line
from lifecycle_sim.study.pipeline.line_occupancy import occupancy
from lifecycle_sim.study.pipeline.line_trace import line_trace

ITEMS = "[[item]]\ncount = {count}\nsize = {size}\n"


def line(stages, items="[[item]]\ncount = 4\n", top=""):
    return load_line(f"{top}\n{items}\n{stages}\n")


def levels(run):
    """The level of the line from each time on at which it changes."""
    total = occupancy(run).total
    return dict(zip(total.time.tolist(), total.level.tolist(), strict=True))


def test_a_batch_starts_when_it_is_complete_or_when_no_more_can_come():
    r"""Five items, a batch of two each 3: 0-3, 3-6, and the last alone 6-9."""
    run = run_line(line('[[stage]]\nname = "oven"\ntime = 3\nbatch = 2', "[[item]]\ncount = 5\n"))
    assert run.jobs.begin.tolist() == [0, 3, 6]
    assert run.jobs.items.tolist() == [2, 2, 1]
    assert run.left.tolist() == [3, 3, 6, 6, 9]


def test_a_batch_waits_for_its_last_item():
    run = run_line(line('[[stage]]\nname = "oven"\ntime = 3\nbatch = 3', '[[item]]\narrivals = "even"\nevery = 5\ncount = 3\n'))
    assert (run.jobs.begin.tolist(), run.left.tolist()) == ([10], [13, 13, 13])


def test_a_time_per_item_counts_for_each_one_in_the_batch():
    run = run_line(line('[[stage]]\nname = "lot"\ntime = 3\nbatch = 2\nper = "item"\nsetup = 1'))
    assert run.left.tolist() == [7, 7, 14, 14]
    figures = measure_line(run)
    assert (figures.stages[0].working, figures.stages[0].setup) == (12, 2)


def test_an_incomplete_batch_starts_when_nothing_else_moves():
    """Both items come back to the press, whose batch of two is never complete while one is at the check."""
    told = run_line(
        line(
            '[[stage]]\nname = "press"\ntime = 1\nbatch = 2\n[[stage]]\nname = "check"\ntime = 1',
            '[[item]]\ncount = 1\nroute = ["press", "check", "press"]',
        )
    )
    assert told.deadlock is None
    assert told.left.tolist() == [3]


def test_a_set_up_when_the_kind_changes():
    items = '[[item]]\nname = "red"\nat = [0, 1, 4]\n[[item]]\nname = "blue"\nat = [2, 3]\n'
    run = run_line(line('[[stage]]\nname = "paint"\ntime = 2\nsetup = 5\nsetup_when = "change"', items))
    assert [run.name(item) for item in range(5)] == ["red 0", "red 1", "blue 0", "blue 1", "red 2"]
    assert run.jobs.setup.tolist() == [5, 0, 5, 0, 5]
    assert run.left.tolist() == [7, 9, 16, 18, 25]


def test_an_idle_machine_that_is_set_up_is_taken_first():
    items = '[[item]]\nname = "red"\nat = [0, 20]\n[[item]]\nname = "blue"\nat = [0, 21]\n'
    run = run_line(line('[[stage]]\nname = "paint"\ntime = 2\nmachines = 2\nsetup = 5\nsetup_when = "change"', items))
    assert run.jobs.setup.tolist() == [5, 5, 0, 0]
    assert run.jobs.machine.tolist() == [0, 1, 0, 1]


def test_a_way_takes_time_and_room_and_its_place_is_taken():
    stages = '[[stage]]\nname = "a"\ntime = 1\ntransport = 4\n[[stage]]\nname = "b"\ntime = 1\nbuffer = 0'
    run = run_line(line(stages, "[[item]]\ncount = 2\n"))
    assert run.enter.tolist() == [0, 5, 0, 10]
    assert run.leave.tolist() == [1, 6, 6, 11]
    held = occupancy(run)
    assert held.places == ("a", "b", "a → b")
    assert held.at(2).area(0, 11) == 8


@pytest.mark.parametrize(
    ("order", "first"),
    [("fifo", [0, 1, 2, 3]), ("lifo", [0, 3, 2, 1]), ("shortest", [0, 3, 1, 2]), ("longest", [0, 2, 1, 3]), ("priority", [0, 3, 2, 1])],
)
def test_who_is_next(order, first):
    items = "".join(
        f'[[item]]\nname = "k{k}"\nat = [{0 if not k else 1}]\ntimes = {{ a = {time} }}\npriority = {9 - k}\n'
        for k, time in enumerate((5, 4, 8, 2))
    )
    run = run_line(line(f'[[stage]]\nname = "a"\ntime = 1\norder = "{order}"', items))
    assert sorted(range(4), key=lambda item: run.start[item]) == first


@pytest.mark.parametrize(("order", "first"), [("smallest", [0, 2, 1, 3]), ("largest", [0, 3, 1, 2])])
def test_who_is_next_by_size(order, first):
    items = "".join(f'[[item]]\nname = "k{k}"\nat = [{0 if not k else 1}]\nsize = {size}\n' for k, size in enumerate((1, 5, 2, 7)))
    run = run_line(line(f'[[stage]]\nname = "a"\ntime = 3\norder = "{order}"', items, 'unit = "kg"'))
    assert sorted(range(4), key=lambda item: run.start[item]) == first


@pytest.mark.parametrize(
    ("output_from", "input_until", "expected"),
    [
        ("done", "done", {0: 4, 2: 10, 5: 6, 8: 0}),
        ("start", "done", {0: 14, 2: 10, 5: 6, 8: 0}),
        ("done", "accepted", {0: 4, 2: 10, 5: 6, 8: 0}),
        ("start", "accepted", {0: 14, 2: 10, 5: 6, 8: 0}),
    ],
)
def test_inputs_and_outputs(output_from, input_until, expected):
    """One item of 4: after a of 2 ticks it takes 10, after b of 3 it takes 6, through c of 3."""
    stages = f'[[stage]]\nname = "a"\ntime = 2\noutput = 10\noutput_from = "{output_from}"\ninput_until = "{input_until}"\n'
    stages += '[[stage]]\nname = "b"\ntime = 3\noutput = 6\n[[stage]]\nname = "c"\ntime = 3'
    assert levels(run_line(line(stages, "[[item]]\nsize = 4\n", 'unit = "kg"'))) == expected


def test_an_input_is_held_until_the_next_stage_accepts():
    r"""Two items; b is busy until 11, so the second one's input of 4 stays beside its output of 10 from 2 to 11."""
    stages = '[[stage]]\nname = "a"\ntime = 1\noutput = 10\ninput_until = "accepted"\n[[stage]]\nname = "b"\ntime = 10\nbuffer = 0\n'
    run = run_line(line(stages, "[[item]]\ncount = 2\nsize = 4\n", 'unit = "kg"'))
    assert levels(run) == {0: 8, 1: 14, 2: 24, 11: 10, 21: 0}
    assert measure_line(run).stages[0].blocked == 9


def test_own_outputs_of_a_kind():
    stages = '[[stage]]\nname = "a"\ntime = 2\noutput = 10\n[[stage]]\nname = "b"\ntime = 1\n'
    run = run_line(line(stages, "[[item]]\nsize = 4\noutputs = { a = 3 }\n", 'unit = "kg"'))
    assert levels(run) == {0: 4, 2: 3, 3: 0}


def test_a_capacity_is_a_line_or_blocks():
    """Eight jobs of 4 GiB for a second at once: 32 GiB for one second, or 16 GiB for two."""
    text = '[[item]]\ncount = 8\nsize = "4 GiB"\n[[stage]]\nname = "s"\ntime = "1 s"\nmachines = 8\n'
    alone = measure_line(run_line(load_line('capacity = "16 GiB"\n' + text)))
    assert (alone.total.peak, alone.run.end, alone.total.overflow, alone.total.above) == (32 << 30, 10**9, 16 << 30, 10**9)
    assert alone.fits is False
    blocked = measure_line(run_line(load_line(text + '[capacity]\nsize = "16 GiB"\nmode = "block"\n')))
    assert (blocked.total.peak, blocked.run.end, blocked.total.overflow) == (16 << 30, 2 * 10**9, 0)
    assert blocked.total.area == alone.total.area
    assert (blocked.outside.total, blocked.fits) == (4 * 10**9, True)


def test_a_stage_has_a_capacity_of_its_own():
    stages = '[[stage]]\nname = "a"\ntime = 1\n[[stage]]\nname = "b"\ntime = 4\ncapacity = 5\n'
    items = "[[item]]\ncount = 3\nsize = 2\n"
    compared = measure_line(run_line(line(stages, items, 'unit = "kg"')))
    assert (compared.stages[1].level.peak, compared.stages[1].level.overflow, compared.fits) == (6, 1, False)
    held = measure_line(run_line(line(stages + '[capacity]\nmode = "block"\n', items, 'unit = "kg"')))
    assert (held.stages[1].level.peak, held.stages[0].blocked, held.fits) == (4, 2, True)


def test_an_item_that_finds_no_place_is_lost_where_it_does_not_wait():
    items = '[[item]]\ncount = 5\narrivals = "even"\nevery = 1\nwhen_full = "lost"\n'
    run = run_line(line('[[stage]]\nname = "a"\ntime = 3\nbuffer = 1', items))
    assert run.lost.tolist() == [False, False, True, False, True]
    assert run.left.tolist() == [3, 6, -1, 9, -1]


def test_an_item_that_comes_when_another_leaves_finds_its_place_free():
    items = '[[item]]\ncount = 2\narrivals = "even"\nevery = 3\nwhen_full = "lost"\n'
    run = run_line(line('[[stage]]\nname = "a"\ntime = 3\nbuffer = 0', items))
    assert run.lost.tolist() == [False, False]
    assert measure_line(run).items.peak == 1


def test_works_that_end_at_once_move_on_by_machine_not_by_when_they_began():
    """Item 1 is on machine 2 from 0 to 9, item 2 on machine 1 from 1 to 9: item 2 is first at b."""
    items = "".join(f'[[item]]\nname = "k{k}"\ntimes = {{ a = {time} }}\n' for k, time in enumerate((1, 9, 8)))
    run = run_line(line('[[stage]]\nname = "a"\ntime = 1\nmachines = 2\n[[stage]]\nname = "b"\ntime = 1', items))
    assert run.start.reshape(3, 2)[:, 1].tolist() == [1, 10, 9]


def test_who_waits_longest_for_a_place_gets_it():
    """b is listed first, so its end is applied first; item 2 is done just then, and item 1 has waited for b since 2."""
    items = "".join(f'[[item]]\nname = "k{k}"\nroute = ["a", "b"]\ntimes = {{ a = {time} }}\n' for k, time in enumerate((1, 2, 9)))
    stages = '[[stage]]\nname = "b"\ntime = 9\nbuffer = 0\n[[stage]]\nname = "a"\ntime = 1\nmachines = 3\n'
    run = run_line(line(stages, items.replace("a = 9", "a = 10")))
    assert run.start.reshape(3, 2)[:, 1].tolist() == [1, 10, 19]


def test_the_shortest_cycle_is_told():
    """a and b block each other; c waits for a too, but is in no shorter cycle."""
    stages = "".join(f'[[stage]]\nname = "{name}"\ntime = 1\nbuffer = 0\n' for name in "abc")
    items = '[[item]]\nname = "x"\nroute = ["a", "b", "a"]\ncount = 2\n[[item]]\nname = "y"\nroute = ["c", "a"]\nstart = 1\n'
    found = run_line(line(stages, items)).deadlock
    assert sorted(wait.who for wait in found.cycle) == ["a, machine 1", "b, machine 1"]
    assert found.inside == 3


def test_a_warm_up_leaves_out_of_residence_who_came_before_it():
    figures = measure_line(run_line(load_line('warmup = 3\n[[item]]\nat = [0, 5]\n[[stage]]\nname = "a"\ntime = 2\n')))
    assert (figures.finished, figures.residence.count) == (2, 1)


def test_two_that_wait_for_each_other_are_a_deadlock_with_its_cycle():
    stages = '[[stage]]\nname = "a"\ntime = 1\nbuffer = 0\n[[stage]]\nname = "b"\ntime = 1\nbuffer = 0\n'
    run = run_line(line(stages, '[[item]]\ncount = 3\nroute = ["a", "b", "a"]\n'))
    found = run.deadlock
    assert (found.time, found.inside, found.outside) == (2, 2, 1)
    assert {(wait.who, wait.item, wait.what) for wait in found.cycle} == {
        ("a, machine 1", "item 1", "a place at b"),
        ("b, machine 1", "item 0", "a place at a"),
    }
    assert [set(wait.held_by) for wait in found.cycle] == [{found.cycle[1].who}, {found.cycle[0].who}]
    assert measure_line(run).fits is False
    assert replay_device(line_trace(run)).timeline.end == 2


def test_a_capacity_that_is_full_of_unfinished_work_is_a_deadlock():
    """Two items of 4 fill 8, and each needs 3 more to begin at b: neither can."""
    stages = '[[stage]]\nname = "a"\ntime = 1\nmachines = 2\n[[stage]]\nname = "b"\ntime = 1\noutput = 3\noutput_from = "start"\n'
    run = run_line(line(stages, "[[item]]\ncount = 2\nsize = 4\n", 'unit = "kg"\ncapacity = { size = 8, mode = "block" }'))
    assert run.deadlock is not None
    assert "room in the line for an output of 3 kg, and 8 of 8 are taken" in run.deadlock.cycle[0].what


def test_a_deadlock_through_growth_names_both_machines():
    stages = '[[stage]]\nname = "a"\ntime = 1\nmachines = 2\noutput = 6\n'
    run = run_line(line(stages, "[[item]]\ncount = 2\nsize = 4\n", 'unit = "kg"\ncapacity = { size = 8, mode = "block" }'))
    assert [wait.who for wait in run.deadlock.cycle] == ["a, machine 1", "a, machine 2"]


def test_the_trace_of_a_line_has_its_peak_its_area_and_its_stages():
    stages = '[[stage]]\nname = "a"\ntime = 2\n[[stage]]\nname = "b"\ntime = 3\n'
    run = run_line(line(stages, '[[item]]\ncount = 4\nsize = "3 KiB"\n', 'capacity = "8 KiB"'))
    figures, trace = measure_line(run), line_trace(run)
    replayed = replay_device(trace)
    assert (replayed.peak.size, replayed.peak.time) == (figures.total.peak, figures.total.peak_time)
    assert average(replayed, 0, run.end).area == figures.total.area
    assert replayed.recorded.capacity == 8192
    assert trace.assumptions == ()
    assert read_jsonl(write_jsonl(trace)) == trace


def test_a_trace_of_square_metres_says_that_they_are_no_bytes():
    trace = line_trace(run_line(line('[[stage]]\nname = "a"\ntime = 2', "[[item]]\nsize = 3\n", 'unit = "m²"')))
    assert [assumed.text for assumed in trace.assumptions] == ["items are counted in m², not in bytes: each B stands for one m²"]


def test_averages_are_those_of_the_window():
    text = "warmup = 2\nhorizon = 10\n" + '[[item]]\ncount = 2\n[[stage]]\nname = "a"\ntime = 4\n'
    figures = measure_line(run_line(load_line(text)))
    assert (figures.begin, figures.end, figures.items.area, figures.items.average) == (2, 10, 8, 1)
    assert (figures.stages[0].working, figures.stages[0].idle) == (6, 2)
