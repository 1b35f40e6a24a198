"""Whether a comparison of sizes at one budget can answer, before any run is made; and what the runs say once there are some.

A comparison answers if three or more (N, D) spend the same budget within a tolerance that was stated, quality is one measure that was fixed
before the first run, and nothing but N and D differs: every run has the same schedule and the same evaluation.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lifecycle_sim.display import Shown
from lifecycle_sim.errors import InputError
from lifecycle_sim.program.schema import Key
from lifecycle_sim.study.budget.compute import training_flops
from lifecycle_sim.study.budget.documents import (
    COUNT,
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    read_document,
    required,
    words,
)
from lifecycle_sim.study.budget.fit import Fit, Forecast, Run, fit_law
from lifecycle_sim.study.budget.shapes import DEFINITIONS
from lifecycle_sim.units import parse_count

LEAST_PAIRS = 3
WIDEST = 0.5
"""A tolerance above this makes budgets equal that are not."""
MOST_RUNS = 1_000

_TABLES: Mapping[str, Mapping[str, Key]] = {
    "budget": {"work": required(POSITIVE), "tolerance": required(NUMBER), "definition": words(*DEFINITIONS)},
    "quality": {"measure": required(TEXT), "better": required(words("lower", "higher")), "fixed_beforehand": required(FLAG)},
    "common": {"schedule": required(TEXT), "evaluation": required(TEXT)},
    "fit": {"data": required(TEXT), "draws": POSITIVE, "seed": COUNT},
}
_ROWS: Mapping[str, Mapping[str, Key]] = {
    "run": {
        "name": TEXT,
        "parameters": required(POSITIVE),
        "tokens": required(POSITIVE),
        "measure": TEXT,
        "schedule": TEXT,
        "evaluation": TEXT,
    },
    "forecast": {"parameters": required(POSITIVE), "tokens": required(POSITIVE)},
}


@dataclass(frozen=True)
class Pair:
    """One run of a protocol: N, D, their work, and how far that is from the budget, as a share of it."""

    name: str
    parameters: int
    tokens: int
    work: int
    deviation: float


@dataclass(frozen=True)
class Requirement:
    """One thing that a comparison needs, whether it is there, and what was found."""

    name: str
    met: bool
    text: str


@dataclass(frozen=True)
class Protocol(Shown):
    """A comparison of sizes, checked.

    Attributes:
        title: its title.
        work: the budget in operations.
        tolerance: how far a run may be from it, as a share.
        definition: what N counts; None if that is not said.
        measure, better: the measure of quality, and whether lower or higher is better.
        pairs: the runs.
        requirements: what it needs.
        fit: the law fitted to the runs of a CSV; None if none was named.
        forecasts: what that law says of the sizes asked about.
        unfitted: why the runs could not be fitted; None if they were, or none were named.
    """

    title: str
    work: int
    tolerance: float
    definition: str | None
    measure: str
    better: str
    pairs: tuple[Pair, ...]
    requirements: tuple[Requirement, ...]
    fit: Fit | None = None
    forecasts: tuple[Forecast, ...] = ()
    unfitted: str | None = None

    @property
    def sound(self) -> bool:
        """Whether the comparison can answer."""
        return all(each.met for each in self.requirements)

    @property
    def answered(self) -> bool:
        """Whether the runs were fitted, if any were named, and no forecast was refused."""
        return self.unfitted is None and all(each.interval for each in self.forecasts)

    def facts(self) -> list[tuple[str, str]]:
        """Return what a notebook shows."""
        rows = [(each.name, f"{'yes' if each.met else 'no'}: {each.text}") for each in self.requirements]
        return [*rows, ("sound", "yes" if self.sound else "no")]


def read_protocol(path: str) -> Protocol:
    """Read the protocol in the TOML file *path*, check it, and fit the runs that it names.

    Raises:
        ScenarioError: it cannot be read or has problems; all of them are told.
        InputError: the CSV of runs cannot be read.
    """
    found = read_document(path, _TABLES, _ROWS)
    problems = [f"{Path(path).name}: [{table}] is missing" for table in ("budget", "quality", "common") if table not in found]
    if "forecast" in found and "fit" not in found:
        problems.append(f"{Path(path).name}: [[forecast]] without [fit]: name the CSV of runs that it rests on")
    if problems:
        raise InputError(problems)
    budget, quality = found["budget"], found["quality"]
    pairs = tuple(_pair(number, row, budget["work"]) for number, row in enumerate(found.get("run", []), start=1))
    fit, unfitted = None, None
    forecasts: tuple[Forecast, ...] = ()
    if "fit" in found:
        runs = read_runs(str(Path(path).parent / found["fit"]["data"]))
        chosen = {key: found["fit"][key] for key in ("draws", "seed") if key in found["fit"]}
        try:
            fit = fit_law(runs, **chosen)
        except InputError as error:
            unfitted = "; ".join(error.problems)
        else:
            forecasts = tuple(fit.forecast(row["parameters"], row["tokens"]) for row in found.get("forecast", []))
    return Protocol(
        found["title"],
        budget["work"],
        budget["tolerance"],
        budget.get("definition"),
        quality["measure"],
        quality["better"],
        pairs,
        tuple(_requirements(found, pairs)),
        fit,
        forecasts,
        unfitted,
    )


def _pair(number: int, row: Mapping[str, Any], work: int) -> Pair:
    spent = training_flops(row["parameters"], row["tokens"])
    return Pair(row.get("name", f"run {number}"), row["parameters"], row["tokens"], spent, spent / work - 1)


def _requirements(found: Mapping[str, Any], pairs: tuple[Pair, ...]) -> list[Requirement]:
    budget, quality, rows = found["budget"], found["quality"], found.get("run", [])
    sizes = len({pair.parameters for pair in pairs})
    tolerance = budget["tolerance"]
    outside = [pair for pair in pairs if abs(pair.deviation) > tolerance]
    made = [
        Requirement("three sizes", sizes >= LEAST_PAIRS, f"{len(pairs):,} runs of {sizes:,} sizes; {LEAST_PAIRS} at least show a minimum"),
        Requirement(
            "one budget",
            bool(pairs) and not outside and tolerance <= WIDEST,
            ", ".join(f"{pair.name} is {100 * pair.deviation:+.1f} % off" for pair in outside)
            or (
                f"all within {100 * tolerance:.3g} %"
                if tolerance <= WIDEST
                else f"a tolerance of {100 * tolerance:.0f} % makes unequal budgets equal"
            ),
        ),
        Requirement(
            "N is defined",
            "definition" in budget,
            DEFINITIONS[budget["definition"]] if "definition" in budget else f"say what N counts: {', '.join(DEFINITIONS)}",
        ),
        Requirement(
            "quality fixed beforehand",
            quality["fixed_beforehand"],
            f"{quality['measure']}, {quality['better']} is better"
            + ("" if quality["fixed_beforehand"] else ": a measure chosen after the runs picks its winner"),
        ),
    ]
    for what, common in (
        ("measure", quality["measure"]),
        ("schedule", found["common"]["schedule"]),
        ("evaluation", found["common"]["evaluation"]),
    ):
        other = [pair.name for pair, row in zip(pairs, rows, strict=True) if row.get(what, common) != common]
        made.append(Requirement(f"same {what}", not other, f"{', '.join(other)} has another" if other else common))
    return made


def read_runs(path: str) -> tuple[Run, ...]:
    """Return the runs in the CSV file *path*: columns N, D and loss, in any order, others left alone.

    Raises:
        InputError: it cannot be read, lacks a column, or rows have problems; all of these are told.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the runs {path!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"cannot read the runs {path!r}: it is not UTF-8 text") from None
    name = Path(path).name
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    reader = csv.DictReader(io.StringIO("\n".join(lines)), skipinitialspace=True)
    try:
        columns = {column.strip().lower(): column for column in reader.fieldnames or []}
    except csv.Error as error:
        raise InputError(f"{name} is no CSV file: {error}") from None
    names = {key: columns.get(key) for key in ("n", "d", "loss")}
    missing = [key.upper() if len(key) == 1 else key for key, column in names.items() if column is None]
    if missing:
        raise InputError(f"{name}: no column {', '.join(missing)}: the first line names the columns N, D and loss")
    runs, problems = [], []
    try:
        rows = list(islice(reader, MOST_RUNS + 1))
    except csv.Error as error:
        raise InputError(f"{name} is no CSV file: {error}") from None
    for number, row in enumerate(rows, start=1):
        if number > MOST_RUNS:
            raise InputError(f"{name}: more than {MOST_RUNS:,} runs")
        try:
            values = {key: (row[str(column)] or "").strip() for key, column in names.items()}
            loss = float(values["loss"])
            run = Run(parse_count(values["n"]), parse_count(values["d"]), loss)
            if run.parameters < 1 or run.tokens < 1 or not 0 < loss < float("inf"):
                raise ValueError("N, D and loss are above 0")
        except ValueError as error:
            problems.append(f"{name}: run {number}: {error}")
        else:
            runs.append(run)
    if problems:
        raise InputError(problems)
    return tuple(runs)
