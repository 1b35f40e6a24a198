"""Bad lines: every problem at once, with its line, and how to mend it."""

import pytest

from lifecycle_sim.errors import InputError, ScenarioError
from lifecycle_sim.study.pipeline.line import ItemKind, Line, LineCapacity, Stage
from lifecycle_sim.study.pipeline.line_answers import what_if_line
from lifecycle_sim.study.pipeline.line_draws import Draw
from lifecycle_sim.study.pipeline.line_edits import read_edits, read_sweep
from lifecycle_sim.study.pipeline.line_engine import run_line
from lifecycle_sim.study.pipeline.line_file import load_line

GOOD = '[[item]]\ncount = 3\n[[stage]]\nname = "press"\ntime = 3\n[[stage]]\nname = "paint"\ntime = 2\n'


def problems(text):
    with pytest.raises(ScenarioError) as caught:
        load_line(text + "\n")
    return caught.value.problems


def test_all_problems_are_told_at_once():
    found = problems(
        """
capacity = { size = "2 GiB", mode = "block" }
[[item]]
name = "job"
size = "4 GiB"
route = ["press", "pait"]
[[stage]]
name = "press"
machines = 0
time = -3
[[stage]]
name = "paint"
time = 2
batch = 4
buffer = 3
[[stage]]
name = "dry"
time = 1
colour = "red"
"""
    )
    assert found == (
        "line 3, [[item]] 1: route: there is no stage 'pait'; did you mean 'paint'?",
        "line 9, [[stage]] 1: machines: 0: a stage without a machine never lets anything through, give 1 or more",
        "line 10, [[stage]] 1: time: time -3 is negative (-3 tick): give zero or more",
        "line 11, [[stage]] 2: nothing ever comes to 'paint': no route of job names it, put it into one or take the stage out",
        "line 11, [[stage]] 2: buffer: a batch of 4 never comes together in 3 places before 'paint': give 4 or more",
        "line 16, [[stage]] 3: nothing ever comes to 'dry': no route of job names it, put it into one or take the stage out",
        found[6],
    )
    assert found[6].startswith("line 19, [[stage]] 3: colour: unknown key")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = 'x'\n", "has no [[stage]]"),
        ('[[operator]]\nname = "x"\n', "ask lifecycle-sim run about it"),
        ('[[stage]]\nname = "a"\ntime = 1', "no items come"),
        (GOOD.replace('"paint"', '"press"'), "a stage 'press' is there already (first at line 3"),
        (GOOD + "[[item]]\ncount = 1\n", "a kind of item 'item' is there already"),
        (GOOD.replace("count = 3", "count = 0"), "count: 0: without items nothing happens, give 1 or more"),
        (GOOD.replace("count = 3", "at = [3, 1]"), "the times go back: put them in order"),
        (GOOD.replace("count = 3", "count = 3\nat = [1, 3]"), "3 items, but at lists 2 times: leave count out"),
        (GOOD.replace("count = 3", 'arrivals = "even"'), "every is missing: arrivals = 'even' needs it"),
        (GOOD.replace("count = 3", "every = 4"), "is of no meaning with arrivals = 'burst'"),
        (
            GOOD.replace("count = 3", 'size = "4 GiB"').replace("time = 2", "time = 2\noutput = 3"),
            "3 has no unit: write for example '3 MiB'",
        ),
        (GOOD.replace("time = 2", 'time = 2\noutput = "3 MiB"'), "size is missing: what one item occupies when it enters"),
        ('unit = "m2"\n' + GOOD.replace("count = 3", 'size = "2 m3"'), "not an integer expression"),
        ('unit = "m2"\n' + GOOD.replace("count = 3", "size = 2.5"), "2.5 is not a whole number of m2: take a smaller unit"),
        ('unit = "m2"\n' + GOOD.replace("count = 3", "size = -2"), "-2 is negative"),
        (GOOD.replace("time = 2", 'time = "2 s"'), "counts ticks, but line 6, [[stage]] 2, time counts seconds"),
        (GOOD.replace("time = 2", "time = { draw = 'exponental', mean = 2 }"), "did you mean 'exponential'?"),
        (GOOD.replace("time = 2", "time = { draw = 'uniform', low = 3 }"), "high is missing: uniform needs low, high"),
        (GOOD.replace("time = 2", "time = { draw = 'uniform', low = 3, high = 2 }"), "low ≤ high does not hold"),
        (GOOD.replace("time = 2", "time = { draw = 'exponential', mean = 2, rate = 1 }"), "unknown key 'rate'"),
        (GOOD.replace("time = 2", "time = { draw = 'choice', of = [1, 2], weights = [1] }"), "as many weights as there are times"),
        (GOOD.replace("time = 2", "time = { draw = 'choice', of = [1, 2], weights = [0, 0] }"), "all weights are 0"),
        (GOOD.replace("time = 2", "time = { draw = 'erlang', mean = 2 }"), "stages is missing"),
        (GOOD.replace("time = 2", "time = { draw = 'lognormal', mean = 0, deviation = 1 }"), "above 0"),
        (
            GOOD.replace("time = 2", "time = { draw = 'uniform', low = 1, high = '2 s' }"),
            "some of its times count ticks and others seconds",
        ),
        (GOOD.replace("time = 2", "time = 2\nbreakdown = { every = 3 }"), "write { every ="),
        (GOOD.replace("time = 2", "time = 2\nbreakdown = { every = 0, repair = 1 }"), "never gets anything done"),
        (GOOD.replace("time = 2", "time = 2\norder = 'lifoo'"), "did you mean 'lifo'?"),
        (GOOD.replace("count = 3", "count = 3\ntimes = { pres = 2 }"), "'item' never visits 'pres'; did you mean 'press'?"),
        (GOOD.replace("count = 3", "route = []"), "'item' visits no stage"),
        ("replications = 3\n" + GOOD, "nothing is drawn, so all 3 runs would be the same"),
        ("warmup = 5\nhorizon = 5\n" + GOOD, "averages would end at 5 and begin at 5"),
        ("seed = -1\n" + GOOD, "a seed is not negative"),
        (GOOD.replace("count = 3", "count = 30_000_000"), "60,000,000 visits of stages: at most 20,000,000"),
        (GOOD.replace("time = 2", "time = 4_000_000_000_000_000_000"), "use a coarser unit of time"),
        ("parameters = { n = 2 }\n" + GOOD.replace("count = 3", "count = 'm'"), "unknown parameter 'm'"),
        (GOOD + "[[stage]]\ntime = 3\n", "name is missing"),
        ("stage = 3\n", "write each one as a table of its own, [[stage]]"),
    ],
)
def test_a_problem_says_what_to_change(text, says):
    found = problems(text)
    assert any(says in problem for problem in found), found


def test_a_capacity_without_room_for_one_item():
    text = 'capacity = { size = "2 GiB", mode = "block" }\n' + GOOD.replace("count = 3", 'size = "4 GiB"')
    (found, _) = problems(text)
    assert (
        found.startswith("line 1, [capacity]: capacity: 'item' at 'press' takes 4,294,967,296 B, and the line has 2,147,483,648: ")
        or "takes" in found
    )
    assert "give 4,294,967,296 or more" in found
    assert load_line(text.replace("block", "line")).capacity == 2 << 30


def test_a_line_built_in_python_is_checked_too():
    with pytest.raises(ScenarioError, match="nothing ever comes to 'b'"):
        run_line(Line((Stage("a", Draw.fixed(1)), Stage("b", Draw.fixed(1))), (ItemKind("item", 1, ("a",)),)))


def test_edits():
    (one,) = read_edits("press.machines=2")
    assert (one.owner, one.key, one.value) == ("press", "machines", 2)
    two = read_edits('press.time={draw="uniform", low=1, high=3},paint.order=lifo,gap=3')
    assert [(each.owner, each.key) for each in two] == [("press", "time"), ("paint", "order"), (None, "gap")]
    assert two[0].value == {"draw": "uniform", "low": 1, "high": 3}
    assert [str(each) for each in read_edits("item.size=2 m2, capacity=4 m2")] == ["item.size=2 m2", "capacity=4 m2"]
    assert [edit.value for (edit,) in read_sweep(["a.b=1..3"])] == [1, 2, 3]
    assert len(read_sweep(["a.b=1..3", "gap=0,500"])) == 6


@pytest.mark.parametrize("text", ["", "press", "press.=2", "=3"])
def test_an_edit_that_is_none(text):
    with pytest.raises(InputError, match="changes nothing"):
        read_edits(text)


def test_a_sweep_that_is_too_large():
    with pytest.raises(InputError, match="at most 10,000"):
        read_sweep(["a.b=1..200", "a.c=1..200"])
    with pytest.raises(InputError, match="from the smaller to the larger"):
        read_sweep(["a.b=3..1"])


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ("pres.machines=2", "there is no stage or kind of item 'pres'; did you mean 'press'?"),
        ("press.machines=0", "a stage without a machine never lets anything through"),
        ("press.machine=2", "unknown key; did you mean 'machines'?"),
        ("gap=3", "there is no parameter or setting 'gap'"),
        ("sed=3", "did you mean 'seed'?"),
    ],
)
def test_an_edit_of_what_is_not_there(edit, says):
    with pytest.raises(ScenarioError) as caught:
        what_if_line(GOOD, [edit])
    assert says in str(caught.value)


def test_an_edit_of_all_stages_and_of_a_parameter():
    text = "parameters = { n = 2 }\n" + GOOD.replace("count = 3", "count = 'n'")
    written, faster, more = what_if_line(text, ["stage.machines=3", "n=9"])
    assert [len(each.first.run.left) for each in (written, faster, more)] == [2, 2, 9]
    assert all(stage.machines == 3 for stage in faster.first.stages)


def test_a_key_that_is_wrong_is_not_said_to_be_missing_or_out_of_place():
    wrong = GOOD.replace("count = 3", 'count = 3\narrivals = "even"\nevery = -1')
    assert [line.partition(": ")[2] for line in problems(wrong)] == ["every: time -1 is negative (-1 tick): give zero or more"]
    wrong = GOOD.replace("count = 3", 'count = 3\narrivals = "evn"\nevery = 1')
    assert len(problems(wrong)) == 1


def test_a_mode_that_blocks_needs_a_capacity_somewhere():
    assert list(problems(f'{GOOD}[capacity]\nmode = "block"')) == [
        "[capacity]: mode: blocks nothing, for neither the line nor a stage has a capacity: write size, or leave it out"
    ]
    sized = 'unit = "m"\n' + GOOD.replace("count = 3", "count = 3\nsize = 1").replace("time = 2", "time = 2\ncapacity = 9")
    assert load_line(f'{sized}[capacity]\nmode = "block"\n').mode is LineCapacity.BLOCK
