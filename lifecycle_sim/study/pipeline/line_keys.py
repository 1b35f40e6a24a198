"""What the tables of a line's scenario may hold, and how each value is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Clock
from lifecycle_sim.program.expressions import LIMIT, did_you_mean, evaluate, evaluate_size, evaluate_time, fill
from lifecycle_sim.program.schema import Key
from lifecycle_sim.study.pipeline.line import Arrivals, Breakdown, InputUntil, LineCapacity, Order, OutputFrom, Per, SetUp, WhenFull
from lifecycle_sim.study.pipeline.line_draws import COUNTS_OF, TIMES_OF, Draw, Shape

Names = Mapping[str, int]
Timed = tuple[Any, frozenset[Clock]]
"""What was read, and what its times count."""
SIZED = ("item", "stage")


def words(of: type[StrEnum]) -> tuple[str, ...]:
    """The values of *of*."""
    return tuple(word.value for word in of)


def text(value: Any, names: Names) -> str:
    """Read a text, with ``{expression}`` filled in."""
    if not isinstance(value, str):
        raise ScenarioError(f"{value!r} is not a text in quotes")
    filled = fill(value, names).strip()
    if not filled:
        raise ScenarioError("is empty: write a name")
    return filled


def texts(value: Any, names: Names) -> tuple[str, ...]:
    """Read a list of texts."""
    if not isinstance(value, list):
        raise ScenarioError(f'{value!r} is not a list of names, such as ["cut", "paint"]')
    return tuple(text(item, names) for item in value)


def whole(least: int, what: str) -> Callable[[Any, Names], int]:
    """Return a reader of whole numbers from *least* on; *what* says what there would be fewer of."""

    def read(value: Any, names: Names) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ScenarioError(f"{value!r} is not a whole number or an expression in quotes, such as 3 or 'jobs + 1'")
        count = value if isinstance(value, int) else evaluate(value, names)
        if count < least:
            of = f"{value!r} is {count}" if isinstance(value, str) else str(count)
            raise ScenarioError(f"{of}: {what}, give {least} or more")
        return count

    return read


def size_in(unit: str | None) -> Callable[[Any, Names], int]:
    """Return a reader of sizes: in bytes, which need a unit, or in *unit*, which may stand behind the number."""

    def read(value: Any, names: Names) -> int:
        if unit is None:
            if isinstance(value, int) and not isinstance(value, bool):
                raise ScenarioError(
                    f"{value} has no unit: write for example '{value} MiB', or say at the top what sizes count: unit = \"m2\""
                )
            if not isinstance(value, str):
                raise ScenarioError(f"{value!r} is not a size in quotes, such as '4 MiB'")
            return evaluate_size(value, names)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ScenarioError(f"{value!r} is not a whole number of {unit}: take a smaller unit where parts of one count")
        if isinstance(value, str):
            value = value.strip()
            size = evaluate(value.removesuffix(unit) if value != unit else value, names)
        else:
            size = value
        if size < 0:
            raise ScenarioError(f"{value!r} is negative: an item occupies 0 {unit} or more")
        if size >= LIMIT:
            raise ScenarioError(f"{value!r} is 2**63 {unit} or more: take a larger unit")
        return size

    return read


def sizes_by_name(unit: str | None) -> Callable[[Any, Names], dict[str, int]]:
    """Return a reader of a table of sizes."""
    read = size_in(unit)
    return lambda value, names: _by_name(value, names, read)


def time(value: Any, names: Names) -> Timed:
    """Read a fixed time."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ScenarioError(f"{value!r} is not a number of ticks or a duration in quotes, such as 3 or '1.5 s'")
    count, clock = evaluate_time(value, names)
    if count < 0:
        raise ScenarioError(f"{count} is negative: nothing ends before it begins, give zero or more")
    return count, frozenset({clock} - {Clock.NONE})


def times(value: Any, names: Names) -> Timed:
    """Read a list of fixed times."""
    if not isinstance(value, list):
        raise ScenarioError(f"{value!r} is not a list of times, such as [0, 3, 3] or ['0', '1.5 s']")
    read = [time(item, names) for item in value]
    return tuple(count for count, _ in read), frozenset().union(*(clocks for _, clocks in read))


def draw(value: Any, names: Names) -> Timed:
    """Read a time that is fixed, or a table that says how to draw it."""
    if not isinstance(value, dict):
        count, clocks = time(value, names)
        return Draw.fixed(count), clocks
    shape = value.get("draw")
    shapes = [each.value for each in TIMES_OF]
    if shape not in shapes:
        hint = did_you_mean(shape, shapes) if isinstance(shape, str) else ""
        raise ScenarioError(
            f'draw = {shape!r} is not one of {", ".join(shapes)}{hint}; write for example {{ draw = "exponential", mean = 3 }}'
        )
    return _drawn(Shape(shape), value, names)


def _drawn(shape: Shape, value: Mapping[str, Any], names: Names) -> Timed:
    known = (*TIMES_OF[shape], *COUNTS_OF.get(shape, ()))
    problems = [f"{key} is missing: {shape} needs {', '.join(TIMES_OF[shape])}" for key in TIMES_OF[shape] if key not in value]
    takes = f": {shape} takes {', '.join(known)}"
    problems += [f"unknown key {key!r}{did_you_mean(key, known) or takes}" for key in value if key not in ("draw", *known)]
    if shape is Shape.ERLANG and "stages" not in value:
        problems.append("stages is missing: of how many exponential times an erlang time is the sum")
    if problems:
        raise ScenarioError(problems)
    if shape is Shape.CHOICE:
        listed, clocks = times(value["of"], names)
        weights = value.get("weights", [1] * len(listed))
        if not isinstance(weights, list) or len(weights) != len(listed) or not listed:
            raise ScenarioError("choice needs as many weights as there are times in of, and one at least")
        counts = tuple(whole(0, "a weight is a share")(weight, names) for weight in weights)
        if not sum(counts):
            raise ScenarioError("all weights are 0: then nothing can be chosen")
        return Draw(shape, listed, counts), clocks
    read = [time(value[key], names) for key in TIMES_OF[shape]]
    given, clocks = tuple(count for count, _ in read), frozenset().union(*(found for _, found in read))
    if len(clocks) > 1:
        raise ScenarioError("some of its times count ticks and others seconds: give every time a unit such as 'ms', or none")
    if shape in (Shape.UNIFORM, Shape.TRIANGULAR) and list(given) != sorted(given):
        raise ScenarioError(f"{' ≤ '.join(TIMES_OF[shape])} does not hold: put them in order")
    if shape is Shape.LOGNORMAL and not all(given):
        raise ScenarioError("a lognormal time has a mean and a deviation above 0")
    counts = (whole(1, "an erlang time is the sum of some")(value["stages"], names),) if shape is Shape.ERLANG else ()
    return Draw(shape, given, counts), clocks


def draws_by_name(value: Any, names: Names) -> Timed:
    """Read a table of times."""
    read = _by_name(value, names, draw)
    return {name: drawn for name, (drawn, _) in read.items()}, frozenset().union(*(clocks for _, clocks in read.values()))


def breakdown(value: Any, names: Names) -> Timed:
    """Read when a machine fails."""
    if not isinstance(value, dict) or set(value) != {"every", "repair"}:
        raise ScenarioError('write { every = "8 h", repair = "20 min" }: working time between failures, and the time of a repair')
    (every, first), (repair, second) = draw(value["every"], names), draw(value["repair"], names)
    if every.mean < 1:
        raise ScenarioError("a machine that fails after no working time never gets anything done: give every more than 0")
    return Breakdown(every, repair), first | second


def _by_name(value: Any, names: Names, read: Callable[[Any, Names], Any]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ScenarioError(f"{value!r} is not a table with the names of stages, such as {{ cut = 3 }}")
    return {name: read(inner, names) for name, inner in value.items()}


def stage_keys(unit: str | None) -> dict[str, Key]:
    """The keys of ``[[stage]]``."""
    return {
        "name": Key(text, required=True),
        "time": Key(draw, required=True),
        "machines": Key(whole(1, "a stage without a machine never lets anything through"), neutral=1),
        "buffer": Key(whole(0, "there cannot be fewer places than none")),
        "batch": Key(whole(1, "a machine takes one item at least"), neutral=1),
        "per": Key(text, words=words(Per)),
        "setup": Key(draw),
        "setup_when": Key(text, words=words(SetUp)),
        "breakdown": Key(breakdown),
        "transport": Key(draw),
        "order": Key(text, words=words(Order)),
        "output": Key(size_in(unit), neutral=0),
        "output_from": Key(text, words=words(OutputFrom)),
        "input_until": Key(text, words=words(InputUntil)),
        "capacity": Key(size_in(unit)),
        "repeat": Key(whole(1, "it is there once at least")),
    }


def item_keys(unit: str | None) -> dict[str, Key]:
    """The keys of ``[[item]]``."""
    return {
        "name": Key(text),
        "count": Key(whole(1, "without items nothing happens")),
        "arrivals": Key(text, words=words(Arrivals)),
        "every": Key(draw),
        "start": Key(time),
        "at": Key(times, neutral=((0,), frozenset())),
        "size": Key(size_in(unit), neutral=0),
        "outputs": Key(sizes_by_name(unit)),
        "times": Key(draws_by_name),
        "route": Key(texts),
        "when_full": Key(text, words=words(WhenFull)),
        "priority": Key(whole(0, "the most urgent has 0"), neutral=0),
        "repeat": Key(whole(1, "it is there once at least")),
    }


def capacity_keys(unit: str | None) -> dict[str, Key]:
    """The keys of ``[capacity]``."""
    return {"size": Key(size_in(unit)), "mode": Key(text, words=words(LineCapacity))}


SETTINGS: dict[str, Key] = {
    "title": Key(text),
    "unit": Key(text),
    "seed": Key(whole(0, "a seed is not negative")),
    "replications": Key(whole(1, "there is one run at least"), neutral=1),
    "warmup": Key(time),
    "horizon": Key(time),
}
TOP = (*SETTINGS, "capacity", "parameters", "stage", "item")
