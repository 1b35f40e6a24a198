"""Scenarios: what they may say, and every problem told at once with its line."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Category, Clock, Kind
from lifecycle_sim.program import Capacity, CapacityMode, InSteps, Lives, SameInstant, load_scenario, run, static_table
from lifecycle_sim.program.places import Lines

BROKEN = """\
same_instant = "allocs-first"
capcity = "4 GiB"
[parameters]
batch = 4
s = 3
[[storage]]
name = "w"
size = 4
[[storage]]
name = "w"
size = "-4 MiB"
colour = "red"
[[storage]]
name = "x"
size = "bach * 4 B"
categry = "parameter"
category = "paramter"
[[event]]
at = 0
alloc = "w"
[[event]]
at = 1
free = "w"
[[event]]
at = 2
free = "w"
[[event]]
at = 3
free = "v"
[[event]]
at = 4
alloc = "unsized"
stream = "copy"
"""


def problems_of(text: str, **parameters: int) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(text if "\n" in text else text + "\n", parameters)
    return caught.value.problems


def test_all_problems_at_once_each_with_its_line() -> None:
    expected = [
        ("line 2: capcity: unknown key", "did you mean 'capacity'?"),
        ("line 5, [parameters]: s: 's' is a unit", "use a longer name"),
        ("line 8, [[storage]] 1: size: 4 has no unit", "'4 MiB'"),
        ("line 9, [[storage]] 2: storage 'w' is declared twice", "line 6, [[storage]] 1"),
        ("line 11, [[storage]] 2: size: size '-4 MiB' is negative", ""),
        ("line 12, [[storage]] 2: colour: unknown key", "known are name, size"),
        ("line 15, [[storage]] 3: size: unknown parameter 'bach'", "did you mean 'batch'?"),
        ("line 16, [[storage]] 3: categry: unknown key", "did you mean 'category'?"),
        ("line 17, [[storage]] 3: category: 'paramter' is not one of", "did you mean 'parameter'?"),
        ("line 24, [[event]] 3: at 2 frees 'w', which went at 1 already", "line 21"),
        ("line 27, [[event]] 4: at 3 frees 'v', which nothing allocates", ""),
        ("line 30, [[event]] 5: 'unsized' has no size", ""),
        ("line 30, [[event]] 5: unknown stream 'copy'", "default"),
    ]
    found = problems_of(BROKEN)
    assert sorted(found) == sorted(line for line in found if any(line.startswith(a) and b in line for a, b in expected))
    assert len(found) == len(expected)
    assert all("\n" not in line for line in found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing happens"),
        ("[[event]\n", "is not TOML"),
        ("x = " + "[" * 5000 + "\n", "TOML|nested"),
        ("x = " + "9" * 5000 + "\n", "TOML"),
        ("event = 3\n", r"\[\[event\]\]"),
        ("event = [3]\n", r"\[\[event\]\]"),
        ("parameters = 3\n", r"\[parameters\]"),
        ("steps = 3\n", r"\[steps\]"),
        ("capacity = 3\n", "no unit"),
        ("[capacity]\nmode = 'wait'\n", "size is missing"),
        ("[capacity]\nsize = '3 B'\nmode = 'weight'\n", "did you mean 'wait'"),
        ("event = [\n{ at = 0 },\n]\n", "line 2, .*no verb .* alloc, free, share"),
        ("event = [\n{ at = 0, alloc = 'a', free = 'a' },\n]\n", "alloc and free in one event"),
        ("event = [\n{ alloc = 'a', size = '1 B' },\n]\n", "at is missing"),
        ("event = [\n{ at = -1, alloc = 'a', size = '1 B' },\n]\n", "negative"),
        ("event = [\n{ at = 1.5, alloc = 'a', size = '1 B' },\n]\n", "ticks or a duration"),
        ("event = [\n{ at = true, alloc = 'a', size = '1 B' },\n]\n", "ticks or a duration"),
        ("event = [\n{ at = 0, alloc = '', size = '1 B' },\n]\n", "is empty"),
        ("event = [\n{ at = 0, alloc = 3, size = '1 B' },\n]\n", "text in quotes"),
        ("event = [\n{ at = 0, alloc = 'a', size = '1 parsec' },\n]\n", "not known"),
        ("event = [\n{ at = 0, alloc = 'a', size = '0' },\n]\n", "no unit"),
        ("event = [\n{ at = 0, alloc = 'a', size = '1 B' },\n{ at = 1, share = 'a' },\n]\n", "as is missing"),
        ("event = [\n{ at = 0, alloc = 'a', size = '1 B' },\n{ at = 1, free = 'a', size = '1 B' },\n]\n", "belongs to alloc"),
        ("event = [\n{ at = 0, alloc = 'a', size = '1 B' },\n{ at = 1, alloc = 'a', size = '1 B' },\n]\n", "leave the size out"),
        ("event = [\n{ at = 0, alloc = 'a', size = '1 B' },\n{ at = 1, alloc = 'a' },\n]\n", "live since at 0"),
        ("event = [\n{ at = 0, alloc = 'a', size = '1 B' },\n{ at = 1, share = 'a', as = 'a' },\n]\n", "live since at 0"),
        ("event = [\n{ at = 2, alloc = 'a', size = '1 B' },\n{ at = 1, free = 'a' },\n]\n", "before it begins at 2"),
        ("event = [\n{ at = 2, alloc = 'a', size = '1 B' },\n{ at = 2, free = 'a' },\n]\n", "half-open.*allocs-first"),
        ("event = [\n{ at = 2, alloc = 'a', size = '1 B' },\n{ at = '3 ms', free = 'a' },\n]\n", "counts ticks, but .* counts seconds"),
        ("event = [\n{ at = 2, alloc = 'abc', size = '1 B' },\n{ at = 3, free = 'abd' },\n]\n", "did you mean 'abc'"),
        ("[capacity]\nsize = '3 B'\nmode = 'wait'\n[[event]]\nat = 0\nalloc = 'a'\nsize = '1 B'\n", "cannot wait for room"),
        ("[steps]\ncount = 2\n[[event]]\nat = 0\nalloc = 'a'\nsize = '1 B'\n", "once, at their times"),
        ("[[storage]]\nname = 'a'\nsize = '1 B'\nlives = 'given'\n[[event]]\nat = 0\nalloc = 'a'\n", "'lives' is for operators"),
        ("[[event]]\nat = 0\nalloc = 'a'\nsize = '1 B'\n[[operator]]\nname = 'f'\nduration = 1\n", "not both"),
        ("[[event]]\nrepeat = 0\nat = 0\nalloc = 'a'\nsize = '1 B'\n", "give 1 or more"),
        ("[[event]]\nrepeat = 10000000\nat = 0\nalloc = 'a{i}'\nsize = '1 B'\n", "at most 1,000,000"),
        ("[[event]]\nrepeat = 3\nat = 0\nalloc = 'a'\nsize = '1 B'\n", "declared twice"),
        ("events = [\n{ at = 0 },\n]\n", "line 1: events: unknown key; did you mean 'event'"),
        ("title = 'x'\n[[events]]\nat = 0\n", "line 2: events: unknown key; did you mean 'event'"),
        ("event = [{ at = 0, alloc = 'a' }, { at = 1, free = 'b' }]\n", r"line 1, \[\[event\]\] 2: at 1 frees 'b'"),
        ("[parameters]\ni = 3\n", "counts repeats"),
        ("[parameters]\nmin = 3\n", "is a function"),
        ("[parameters]\n'a b' = 3\n", "cannot stand in an expression"),
        ("[parameters]\nbatch = 1.5\n", "not a whole number"),
        ("[parameters]\nbatch = 9223372036854775808\n", "too large"),
        ("[parameters]\nbatch = 'batch + 1'\n", "unknown parameter 'batch'"),
    ],
)
def test_problems(text: str, says: str) -> None:
    import re

    found = problems_of(text)
    assert any(re.search(says, line) for line in found), found


OPERATORS = """\
[[stream]]
name = "compute"
[[storage]]
name = "w"
size = "4 B"
lives = "given"
[[storage]]
name = "x"
size = "4 B"
"""


def operator(name: str, **keys: object) -> str:
    lines = [f"{key} = {value!r}" for key, value in {"name": name, "duration": 1, "stream": "compute", **keys}.items()]
    return "[[operator]]\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([operator("f", stream="computer")], "unknown stream 'computer'; did you mean 'compute'"),
        ([operator("f", reads=["y"])], "'f' reads 'y', which is no storage"),
        ([operator("f", reads=["x"])], "'f' reads 'x' before it is written$"),
        ([operator("f", reads=["x"]), operator("g", writes=["x"])], "before it is written; 'g', which writes it, stands further down"),
        ([operator("f", writes=["x", "x"])], "writes 'x' 2 times"),
        ([operator("f", frees=["x"], writes=["x"])], "goes after its last reader anyway"),
        ([operator("f", frees=["w"]), operator("g", frees=["w"])], "'g' frees 'w', which is not live"),
        ([operator("f", frees=["w"]), operator("g", reads=["w"])], "'g' reads 'w' before it is written"),
        ([operator("f", after=["h"])], "'f' is after 'h', which is no operator"),
        ([operator("f"), operator("f")], "operator 'f' is declared twice"),
        ([operator("f", duration=-1)], "negative"),
        ([operator("f", temporaries=["3"])], "no unit"),
        ([operator("f", temporaries="3 B")], "list of sizes"),
        ([operator("f", reads="w")], "list of names"),
        ([operator("f", phase="foreward")], "did you mean 'forward'"),
        ([operator("f", steps="frist")], "did you mean 'first'"),
        ([operator("f", after=["f"])], "cycle: 'f' waits for 'f'"),
        (
            [operator("f", after=["g"]), operator("g")],
            r"cycle: .*'f' waits for 'g' \(after\).*'g' waits for 'f' \(stream 'compute'\)|cycle: 'g'.*'f'",
        ),
        ([operator("f", writes=["x"]), "[steps]\ncount = 2000000\n"], "at most 1,000,000 runs"),
        (["[[storage]]\nname = 'y'\nshares = 'z'\n", operator("f")], "'y' shares 'z', which is no storage"),
        (["[[storage]]\nname = 'y'\nshares = 'x'\nsize = '1 B'\n", operator("f")], "size of its own too"),
        (["[[storage]]\nname = 'y'\nshares = 'z'\n[[storage]]\nname = 'z'\nshares = 'y'\n", operator("f")], "shares it in turn"),
        (["[[storage]]\nname = 'y'\nshares = 'x'\nlives = 'given'\n", operator("f")], "make both given"),
        (["[[storage]]\nname = 'y'\nshares = 'x'\n", operator("f", writes=["y"])], "makes 'y' of 'x', which is not live"),
        (["[[storage]]\nname = 'y'\n", operator("f")], "size is missing"),
        ([operator("f", writes=["x"]), "[capacity]\nsize = '3 B'\nmode = 'wait'\n"], "more than the capacity of 3 B: there never is room"),
        (["[[stream]]\nname = 'compute'\n", operator("f")], "declared 2 times"),
    ],
)
def test_problems_of_operators(rows: list[str], says: str) -> None:
    import re

    found = problems_of(OPERATORS + "".join(rows))
    assert any(re.search(says, line) for line in found), found
    assert len(found) <= 2


def test_a_problem_of_a_later_step_is_found_before_anything_runs() -> None:
    text = OPERATORS + "[steps]\ncount = 3\n" + operator("f", steps="first", writes=["x"]) + operator("g", reads=["x"])
    assert any("'g' reads 'x' before it is written" in line for line in problems_of(text))
    text = OPERATORS + "[steps]\ncount = 3\n" + operator("f", steps="later", frees=["w"])
    assert any("not live (double free" in line for line in problems_of(text))


def test_a_problem_in_a_repeated_table_is_told_once() -> None:
    text = "[[event]]\nrepeat = 50\nat = 'i * gap ms'\nalloc = 'job{i}'\nsize = '1 B'\n"
    assert problems_of(text) == ("line 3, [[event]] 1, i = 0: at: unknown parameter 'gap' in 'i * gap': known are i",)


def test_thousands_of_problems_are_told_without_delay() -> None:
    rows = [f"{{ at = {k}, free = 'name{k}' }},\n{{ at = {k}, alloc = 'other{k}', size = '1 B' }}," for k in range(2000)]
    assert len(problems_of("event = [\n" + "\n".join(rows) + "\n]\n")) == 2000


def test_unknown_parameters_given_are_told() -> None:
    text = "[parameters]\nbatch = 4\n[[event]]\nat = 0\nalloc = 'a'\nsize = 'batch B'\n"
    assert problems_of(text, bacth=3) == ("unknown parameter 'bacth'; did you mean 'batch'?",)
    assert load_scenario(text, {"batch": 7}).storages[0].size == 7
    assert "not a whole number" in problems_of(text, batch=True)[0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        load_scenario(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe9'\n")
    with pytest.raises(ScenarioError, match="UTF-8"):
        load_scenario(tmp_path / "latin.toml")
    with pytest.raises(ScenarioError, match="cannot read"):
        load_scenario(tmp_path)
    with pytest.raises(ScenarioError, match="cannot read"):
        load_scenario("a\0b")


def test_everything_a_scenario_can_say() -> None:
    program = load_scenario(
        """\
title = "All of it"
device = "cuda:3"
same_instant = "allocs-first"
parameters = { layers = 2, width = 8, wide = "4 * width" }
steps = { count = "layers + 1" }
capacity = { size = "wide KiB", mode = "wait" }

[[stream]]
name = "compute"

[[stream]]
name = "copy"

[[storage]]
repeat = "layers"
name = "act{i}"
size = "wide * 4 B"
category = "activation"
owner = "layer{i}"

[[storage]]
name = "m"
size = "4 B"
lives = "kept"
category = "optimizer_state"

[[storage]]
name = "view"
shares = "act0"

[[operator]]
repeat = "layers"
name = "linear{i}"
duration = "i + 1 us"
stream = "compute"
writes = ["act{i}"]

[[operator]]
repeat = "layers"
name = "relu{i}"
duration = "1 us"
stream = "copy"
reads = ["act{i}"]
temporaries = ["1 B", "2 B"]
after = ["linear{i}"]
phase = "forward"

[[operator]]
name = "step"
duration = "1 us"
stream = "compute"
writes = ["m"]
frees = ["m"]
steps = "later"
"""
    )
    assert program.title == "All of it"
    assert program.device == "cuda:3"
    assert program.same_instant is SameInstant.ALLOCS_FIRST
    assert program.parameters == {"layers": 2, "width": 8, "wide": 32}
    assert program.steps == 3
    assert program.capacity == Capacity(32 * 1024, CapacityMode.WAIT)
    assert program.clock is Clock.NANOSECONDS
    assert program.streams == ("compute", "copy")
    assert [(s.name, s.size, s.lives, s.shares) for s in program.storages] == [
        ("act0", 128, Lives.STEP, None),
        ("act1", 128, Lives.STEP, None),
        ("m", 4, Lives.KEPT, None),
        ("view", 0, Lives.STEP, "act0"),
    ]
    assert program.storages[1].owner == "layer1"
    assert [(o.name, o.duration) for o in program.operators] == [
        ("linear0", 1000),
        ("relu0", 1000),
        ("linear1", 2000),
        ("relu1", 1000),
        ("step", 1000),
    ], "neighbours with the same repeat are one loop's body"
    assert program.operators[3].temporaries == (1, 2)
    assert program.operators[3].after == ("linear1",)
    assert program.operators[4].steps is InSteps.LATER
    assert str(program.operators[3].place) == "line 38, [[operator]] 2, i = 1"
    assert static_table(program)[Category.OPTIMIZER_STATE] == 4


def test_capacity_as_a_size_is_a_line() -> None:
    text = "capacity = '16 GiB'\n[[event]]\nat = 0\nalloc = 'a'\nsize = '1 B'\n"
    assert load_scenario(text).capacity == Capacity(16 * 2**30, CapacityMode.LINE)


def test_a_storage_may_be_declared_apart_and_allocated_twice() -> None:
    program = load_scenario(
        "[[storage]]\nname = 'a'\nsize = '8 B'\n"
        "[[event]]\nat = 0\nalloc = 'a'\n[[event]]\nat = 1\nfree = 'a'\n[[event]]\nat = 1\nalloc = 'a'\n"
    )
    assert [event.kind for event in program.events] == [Kind.ALLOC, Kind.FREE, Kind.ALLOC]
    assert len(program.storages) == 1


def test_lines_are_left_out_rather_than_wrong() -> None:
    text = '["event"]\n[[event]]\nat = 0\n[[event]]\nat = 1\n'
    assert Lines(text, {"event": [{"at": 0}] * 3}).row("event", 1) == 0


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = '''\n[[event]]\n'''\n[[event]]\nat = 0\n", [4]),
        ("event = [{ at = 0 }, { at = 1 }]\n", [1, 1]),
        ('event = [{ at = 0 },\n  { at = 1 }, # { }\n\n{ at = \'}{\', x = [{ }] }, { at = """\n{""" }]\n', [1, 2, 4, 4]),
        ("event = [\n  # { at = 0 },\n  { at = 1 },\n]\nx = 3\n", [3]),
        ("[[event]]\nx = [{ a = 1 },\n{ a = 2 }]\n[[event]]\n", [1, 4]),
    ],
)
def test_lines_of_tables_however_they_are_written(text: str, lines: list[int]) -> None:
    found = Lines(text, tomllib.loads(text))
    assert [found.row("event", number) for number in range(1, len(lines) + 1)] == lines


def test_the_line_of_a_table_by_itself() -> None:
    text = "title = 'x'\nparameters = { a = 1 }\n"
    assert Lines(text, tomllib.loads(text)).row("parameters", 1) == 2


def test_what_is_wrong_in_one_row_hides_nothing_about_other_names() -> None:
    found = problems_of(
        "event = [\n"
        "{ at = 0, alloc = 'a', size = '1 B' },\n{ at = 1, free = 'a' },\n{ at = 2, free = 'a' },\n"
        "{ at = 3, fre = 'b' },\n{ at = 4, alloc = 'b', size = '1 B' },\n{ at = 5, free = 'b' },\n{ at = 6, free = 'b' },\n"
        "{ at = 'soon', alloc = 'c', size = '1 B' },\n{ at = 7, free = 'c' },\n]\n"
    )
    assert [line.split(",")[0] for line in found] == ["line 4", "line 5", "line 9"], found
    assert "the storage is freed already" in found[0]


def test_what_is_wrong_in_one_operator_hides_nothing_about_others() -> None:
    rows = [
        operator("f", reeds=["x"], writes=["y"]),
        operator("g", reads=["x", "y"]),
        operator("h", frees=["w"]),
        operator("k", frees=["w"]),
    ]
    found = problems_of(OPERATORS + "".join(rows))
    assert len(found) == 2, found
    assert "did you mean 'reads'" in found[0]
    assert "'k' frees 'w', which is not live" in found[1]


def test_a_double_free_says_what_still_holds_the_storage() -> None:
    rows = (
        "event = [\n{ at = 0, alloc = 'w', size = '1 B' }, { at = 0, alloc = 'other', size = '1 B' },\n{ at = 1, share = 'w', as = 't' },\n"
    )
    rows += "{ at = 2, free = 'w' },\n{ at = 3, free = 'w' },\n"
    assert "a name goes once; the storage is freed when 't' goes too" in problems_of(rows + "]\n")[0]
    assert "the storage is freed already" in problems_of(rows.replace("3, free = 'w'", "3, free = 't' },\n{ at = 4, free = 'w'") + "]\n")[0]


def test_parameters_that_make_problems_are_named() -> None:
    text = "[parameters]\nbatch = 4\nrows = 'batch * 2'\n[[storage]]\nname = 'v'\nsize = 'batch B'\n"
    text += "[[event]]\nat = 0\nalloc = 'a'\nsize = 'rows * 4 B'\n"
    found = problems_of(text, batch=-1)
    assert found[0] == "the problems below come with batch = -1: with its own batch the scenario has none"
    assert "negative (-1 B with batch = -1)" in found[1]
    assert "negative (-8 B with rows = -2)" in found[2]
    assert load_scenario(text, {"batch": 0})
    (empty,) = run(load_scenario(text, {"batch": 0})).assumptions
    assert (empty.code, empty.count, "batch = 0, rows = 0" in empty.text) == ("empty_storages", 2, True)
    assert run(load_scenario(text)).assumptions == ()


def test_mixed_clocks_are_one_problem() -> None:
    text = "event = [\n{ at = '1 ms', alloc = 'a', size = '1 B' },\n{ at = 3, free = 'a' },\n]\n"
    (problem,) = problems_of(text)
    assert "counts ticks, but line 2" in problem
    (problem,) = problems_of("horizon = '1 s'\n" + text.replace("'1 ms'", "1"))
    assert problem.startswith("line 1: horizon: counts seconds, but line 3")


def test_the_horizon_is_a_time_above_zero() -> None:
    text = "event = [\n{ at = '0', alloc = 'a', size = '1 B' },\n{ at = '3 ms', free = 'a' },\n]\n"
    assert load_scenario("horizon = '4 ms'\n" + text).horizon == 4_000_000
    assert load_scenario(text).horizon is None
    assert "no time to average over" in problems_of("horizon = 0\n" + text)[0]


def test_tables_in_braces_over_several_lines_are_explained() -> None:
    assert "stands on one line: write [[event]]" in problems_of("event = [\n{ at = 0,\nalloc = 'a' },\n]\n")[0]
    assert "stands on one line" not in problems_of("[[event]\nat = 0\n")[0]


_SNIPPETS = st.sampled_from(
    """
[[event]] | [[operator]] | [[storage]] | at = 0 | alloc = 'a' | size = '1 B' | free = 'a' | share = 'a' | as = 'b' | name = 'a'
duration = 1 | reads = ['a'] | writes = ['a'] | frees = ['a'] | shares = 'a' | lives = 'given' | repeat = 2 | name = 'f{i}'
[steps] | count = 2
[capacity] | mode = 'wait' | [parameters] | a = 1 | x = [1, {a = 2}] | temporaries = ['1 B'] | after = ['a']
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_SNIPPETS, max_size=14))
def test_any_mixture_of_lines_loads_or_is_refused_clearly(lines: list[str]) -> None:
    refused: tuple[str, ...] = ()
    try:
        load_scenario("\n".join(lines) + "\n\n")
    except ScenarioError as error:
        refused = error.problems or ("",)
    assert all(line and "\n" not in line for line in refused)
