"""Plans in numbers: the tables that a TOML file may hold, and the report that they make."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.schema import Key
from lifecycle_sim.study.batch.search import feasible_range
from lifecycle_sim.study.budget.activations import RECOMPUTE, ends, layer_activations, stage_layers
from lifecycle_sim.study.budget.adapters import Quantised, lora_parameters
from lifecycle_sim.study.budget.allocation import LAWS, POWERS, allocate
from lifecycle_sim.study.budget.compute import attention_flops, experts_of, recompute_factor, training_flops
from lifecycle_sim.study.budget.documents import (
    COUNT,
    COUNTS,
    DURATION,
    DURATIONS,
    FLAG,
    NUMBER,
    POSITIVE,
    POSITIVES,
    SIZE,
    TEXT,
    TYPE,
    read_document,
    required,
    words,
)
from lifecycle_sim.study.budget.experiment import repetition_experiment
from lifecycle_sim.study.budget.links import missing_of, not_counted_of, planned_time, types_of
from lifecycle_sim.study.budget.planner import candidates, equal_loss
from lifecycle_sim.study.budget.report import (
    BudgetReport,
    LargestBatch,
    Opening,
    PlannedTime,
    PlannedWork,
    StepMemory,
    sharding_text,
)
from lifecycle_sim.study.budget.shapes import DEFINITIONS, FAMILIES, Parameters
from lifecycle_sim.study.budget.sharding import UNITS, Sharding
from lifecycle_sim.study.budget.speed import PARTS, PEAKS, step_time
from lifecycle_sim.study.budget.states import StateBudget, state_budget
from lifecycle_sim.study.budget.tokens import TokenCount, token_count
from lifecycle_sim.study.budget.widths import Type, bits_of

_SIZES = ("layers", "width", "ffn", "heads", "kv_heads", "head_size", "vocabulary", "positions", "kinds", "buckets")
_RECIPE: Mapping[str, Key] = {
    "name": TEXT,
    "weights": TYPE,
    "gradients": TYPE,
    "master": TYPE,
    "main_gradients": TYPE,
    "moments": TYPE,
    "optimizer": TEXT,
}
TABLES: Mapping[str, Mapping[str, Key]] = {
    "model": {
        "parameters": COUNT,
        "trainable": COUNT,
        "definition": words(*DEFINITIONS),
        "buffers": SIZE,
        "family": words(*FAMILIES),
        "tied": FLAG,
        **dict.fromkeys(_SIZES, POSITIVE),
    },
    "frozen": {"kind": TYPE, "group": POSITIVE, "scale": TYPE, "zero": TYPE, "second": POSITIVE},
    "experts": dict.fromkeys(("shared", "router", "expert", "experts", "active", "total"), COUNT),
    "sharding": {
        "stage": COUNT,
        **dict.fromkeys(("data", "tensor", "pipeline", "devices"), POSITIVE),
        "unit": words(*UNITS),
        "whole": COUNT,
        "whole_gradients": FLAG,
    },
    "activations": {
        "layers": POSITIVE,
        "width": POSITIVE,
        "heads": POSITIVE,
        "vocabulary": POSITIVE,
        "recompute": words(*RECOMPUTE),
        "fused_attention": FLAG,
        "sequence_parallel": FLAG,
        "microbatches": POSITIVE,
        "element": POSITIVE,
    },
    "memory": {"capacity": SIZE, "margin": SIZE},
    "run": {
        "tokens": COUNT,
        "steps": COUNT,
        "batch": POSITIVE,
        "sequence": POSITIVE,
        "effective": COUNT,
        "distinct": POSITIVE,
    },
    "speed": {
        "device": words(*PEAKS),
        "peak": POSITIVE,
        "devices": POSITIVE,
        "tokens_per_second": NUMBER,
        "measured": TEXT,
        "steps": DURATIONS,
        "warmup": POSITIVE,
        **dict.fromkeys(PARTS, DURATIONS),
        "tokens_per_step": POSITIVE,
        "saving_once": DURATION,
        "saves": COUNT,
    },
    "planner": {"work": POSITIVE, "sizes": POSITIVES, "served": COUNT, "law": words(*LAWS), "same_loss": NUMBER, "approaches": FLAG},
    "experiment": {"rates": POSITIVES, "samples": POSITIVE, "held_out": POSITIVE, "seeds": COUNTS},
}
ROWS: Mapping[str, Mapping[str, Key]] = {
    "recipe": _RECIPE,
    "adapter": dict.fromkeys(("rank", "rows", "columns", "matrices"), required(POSITIVE)),
}

Tables = Mapping[str, Any]


def read_numbers(path: str) -> dict[str, Any]:
    """Return the tables of the TOML file *path*, checked one by one; :func:`plan` makes the report of them.

    Raises:
        ScenarioError: it cannot be read, or has problems; all of them are told.
    """
    return read_document(path, TABLES, ROWS)


def plan_of(found: Tables) -> BudgetReport:
    """Return the report on a plan in numbers.

    Args:
        found: tables as :func:`read_numbers` returns them.

    Raises:
        InputError: the numbers contradict each other, or too few were given; all problems are told.
    """
    if not any(table in found for table in ("model", "experts", "planner", "experiment")):
        raise InputError("nothing to tell of: give [model], [experts], [planner] or [experiment]")
    return _Plan(found).report()


class _Plan:
    """Goes through the tables; every part that fails leaves its problems, and the others go on."""

    def __init__(self, found: Tables) -> None:
        self.found = found
        self.problems: list[str] = []

    def table(self, name: str) -> Mapping[str, Any]:
        table: Mapping[str, Any] = self.found.get(name, {})
        return table

    def attempt(self, table: str, make: Callable[[], Any]) -> Any:
        """What *make* returns, None if the numbers of *table* do not go together."""
        try:
            return make()
        except InputError as error:
            self.problems += [f"[{table}]: {problem}" for problem in error.problems]
            return None

    def report(self) -> BudgetReport:
        model = self.attempt("model", self.model)
        parameters, counted, buffers = model or (None, None, 0)
        division = self.attempt("sharding", lambda: Sharding(**self.table("sharding")))
        states = self.states(parameters, buffers, division or Sharding())
        tokens = self.attempt("run", self.tokens)
        processed = tokens.processed if tokens is not None else self.table("run").get("tokens")
        work = self.attempt("activations", lambda: self.work(counted, processed))
        time = self.attempt("speed", lambda: self.time(work, tokens))
        memory = self.attempt("activations", lambda: self.memory(states, division or Sharding()))
        planner = self.attempt("planner", self.planner) or ((), (), None)
        experiment = (
            self.attempt("experiment", lambda: repetition_experiment(**self.table("experiment"))) if "experiment" in self.found else ()
        )
        if self.problems:
            raise InputError(dict.fromkeys(self.problems))
        allocations, chosen, loss = planner
        largest = self.attempt("memory", lambda: self.largest(memory))
        if self.problems:
            raise InputError(dict.fromkeys(self.problems))
        made = BudgetReport(
            self.found.get("title", "plan"),
            opening=self.opening(states, tokens, processed) if parameters is not None else None,
            states=states,
            memory=memory,
            largest=largest,
            tokens=tokens,
            work=work,
            time=time,
            allocations=allocations,
            candidates=chosen,
            same_loss=loss,
            experiment=experiment,
        )
        return replace(made, missing=missing_of(made), not_counted=not_counted_of(made))

    def model(self) -> tuple[int, int, int] | None:
        """N in memory, N in 6ND, and the bytes of buffers."""
        model, experts = self.table("model"), self.table("experts")
        buffers = model.get("buffers", 0)
        if experts:
            if model.keys() & {"parameters", "family"}:
                raise InputError("[experts] tell the parameters already: leave parameters and family out")
            made = experts_of(**experts)
            return made.total, made.activated, buffers
        if "family" in model:
            sizes = {key: model[key] for key in (*_SIZES, "tied") if key in model}
            if "parameters" in model:
                raise InputError("family and its sizes tell the parameters already: leave parameters out")
            counts = sized(model["family"], sizes)
            return counts.unique, counts.count(model.get("definition", "all")), buffers + counts.buffers
        if extra := [key for key in (*_SIZES, "tied") if key in model]:
            raise InputError(f"{', '.join(extra)}: sizes need a family, one of {', '.join(FAMILIES)}")
        if "parameters" not in model:
            if model:
                raise InputError("parameters is missing: give a count, or a family and its sizes")
            return None
        return model["parameters"], model["parameters"], buffers

    def states(self, parameters: int | None, buffers: int, division: Sharding) -> tuple[tuple[str, StateBudget], ...]:
        if parameters is None:
            return ()
        made = []
        recipes = self.found.get("recipe", [{}])
        for number, row in enumerate(recipes, start=1):
            budget = self.attempt("recipe", partial(self.one_state, parameters, buffers, division, row))
            if budget is not None:
                made.append((row.get("name", f"recipe {number}" if len(recipes) > 1 else "states"), budget))
        return tuple(made)

    def one_state(self, parameters: int, buffers: int, division: Sharding, row: Mapping[str, Any]) -> StateBudget:
        recipe = {key: value for key, value in row.items() if key != "name"}
        trainable, added = self.table("model").get("trainable"), self.adapters()
        if added:
            if trainable is not None:
                raise InputError("[[adapter]] tells what is trained: leave trainable out")
            parameters, trainable = parameters + added, added
        return state_budget(parameters, trainable=trainable, frozen_weights=self.frozen(), buffers=buffers, sharding=division, **recipe)

    def adapters(self) -> int:
        """Parameters of low-rank adapters."""
        rows = self.found.get("adapter", [])
        return sum(row["matrices"] * lora_parameters([(row["rows"], row["columns"])], row["rank"]) for row in rows)

    def frozen(self) -> Type | Quantised | None:
        """The type of frozen weights, or how they are quantised."""
        table = dict(self.table("frozen"))
        if not table or (len(table) == 1 and "kind" in table and bits_of(table["kind"]) > 8):
            kind: Type | None = table.get("kind")
            return kind
        return Quantised(**table)

    def tokens(self) -> TokenCount | None:
        run = self.table("run")
        if not run:
            return None
        places = {"batch", "sequence"} & run.keys()
        if "steps" in run:
            if "tokens" in run:
                raise InputError("steps tell the tokens already: leave tokens out")
            if len(places) < 2:
                raise InputError("steps need batch and sequence")
            chosen = {key: run[key] for key in ("effective", "distinct") if key in run}
            return token_count(run["steps"], batch=run["batch"], sequence=run["sequence"], **chosen)
        if "effective" in run:
            raise InputError("effective tokens are those of a step: give steps")
        return None

    def work(self, counted: int | None, processed: int | None) -> PlannedWork | None:
        if counted is None:
            return None
        sizes, sequence = self.table("activations"), self.table("run").get("sequence")
        recompute = sizes.get("recompute", "none")
        attention = None
        if processed is not None and {"layers", "width"} <= sizes.keys() and sequence:
            attention = attention_flops(sizes["layers"], sizes["width"], sequence) * processed
        factor = recompute_factor(recompute, sequence, sizes.get("width")) if sizes else Fraction(1)
        return PlannedWork(counted, processed, None if processed is None else training_flops(counted, processed), attention, factor)

    def time(self, work: PlannedWork | None, tokens: TokenCount | None) -> PlannedTime | None:
        speed, run = self.table("speed"), self.table("run")
        if work is None or not work.flops or (not speed and not run):
            return None
        if "device" in speed and "peak" in speed:
            raise InputError("device tells the peak already: leave one of the two out")
        steps, throughput = None, Fraction(speed["tokens_per_second"]) if "tokens_per_second" in speed else None
        if "steps" in speed:
            if throughput is not None:
                raise InputError("steps tell the throughput already: leave tokens_per_second out")
            steps = step_time(speed["steps"], speed.get("warmup", 0), **{part: speed.get(part) for part in PARTS})
            each = speed.get("tokens_per_step", run.get("effective", run.get("batch", 0) * run.get("sequence", 0)))
            if not each:
                raise InputError("steps need tokens_per_step, or batch and sequence in [run]")
            throughput = steps.throughput(each)
        elif extra := [key for key in ("warmup", "tokens_per_step", *PARTS) if key in speed]:
            raise InputError(f"{', '.join(extra)}: they go with steps, the times that were measured")
        saving = speed.get("saving_once", 0) * speed.get("saves", 0)
        return planned_time(
            work,
            peak=speed.get("peak", PEAKS.get(speed.get("device", ""))),
            devices=speed.get("devices", 1),
            device=speed.get("device"),
            throughput=throughput,
            sequence=run.get("sequence"),
            measured=speed.get("measured") or (f"{steps.measured:,} steps after {steps.warmup:,} of warm-up" if steps else None),
            saving=saving,
            steps=steps,
        )

    def memory(self, states: tuple[tuple[str, StateBudget], ...], division: Sharding) -> StepMemory | None:
        sizes, run, memory = self.table("activations"), self.table("run"), self.table("memory")
        if not states or not (sizes or memory):
            return None
        static, kept = states[0][1].total, None
        if sizes:
            missing = [key for key in ("layers", "width", "heads") if key not in sizes]
            missing += [f"{key} in [run]" for key in ("batch", "sequence") if key not in run]
            if missing:
                raise InputError(f"{', '.join(missing)}: activations need them")
            options = {key: sizes[key] for key in ("recompute", "fused_attention", "sequence_parallel", "element") if key in sizes}
            layer = layer_activations(run["sequence"], run["batch"], sizes["width"], sizes["heads"], tensor=division.tensor, **options)
            stages = division.pipeline
            kept = layer.total * stage_layers(sizes["layers"], stages, sizes.get("microbatches", stages))
            if "vocabulary" in sizes:
                kept += ends(run["sequence"], run["batch"], sizes["width"], sizes["vocabulary"], stages)
        capacity, margin = memory.get("capacity"), memory.get("margin", 0)
        return StepMemory("closed form", "payload", static, kept, kept, 0, static + (kept or 0), None, None, None, None, margin, capacity)

    def largest(self, memory: StepMemory | None) -> LargestBatch | None:
        """The largest micro-batch by closed forms, in which activations are proportional to it."""
        if memory is None or memory.capacity is None or not memory.activations:
            return None
        room, limit = max(0, memory.capacity - memory.margin), 2**62
        found = feasible_range(memory.states, memory.activations // self.table("run")["batch"], room, limit)
        if found.batch < 0:
            text = f"states alone are {found.bytes_at(0) - room:,} B too much"
        else:
            text = f"the next needs {found.bytes_at(found.batch + 1) - room:,} B more than there are"
        proof = f"exactly: {found.fixed:,} B of states and {found.per_sample:,} B of activations a sample; temporaries are not in it"
        return LargestBatch(found.batch, proof, (), text)

    def planner(self) -> tuple[Any, Any, float | None]:
        chosen = self.table("planner")
        if not chosen:
            return (), (), None
        law = LAWS[chosen["law"]] if "law" in chosen else None
        sizes, distinct, served = chosen.get("sizes", []), self.table("run").get("distinct"), chosen.get("served", 0)
        given = ["throughput"] if self.table("speed").keys() & {"tokens_per_second", "steps"} else []
        if "same_loss" in chosen:
            if law is None or not sizes or "work" in chosen:
                raise InputError("same_loss needs a law and sizes, and tells the work itself: leave work out")
            return (), equal_loss(chosen["same_loss"], sizes, law, served=served, distinct=distinct, given=given), chosen["same_loss"]
        if "work" not in chosen:
            raise InputError("work is missing: give the operations that may be spent")
        told = tuple(allocate(chosen["work"], name) for name in (*POWERS, *LAWS)) if chosen.get("approaches", not sizes) else ()
        made = candidates(chosen["work"], sizes, served=served, distinct=distinct, law=law, given=given)
        return told, made, None

    def opening(self, states: tuple[tuple[str, StateBudget], ...], tokens: TokenCount | None, processed: int | None) -> Opening:
        first, model, run = states[0][1], self.table("model"), self.table("run")
        frozen = first.parameters - first.trainable
        return Opening(
            "inference" if first.optimizer == "none" else "training",
            first.parameters,
            first.trainable,
            model.get("definition"),
            run.get("batch"),
            run.get("sequence"),
            processed,
            types_of(first),
            first.optimizer,
            (f"{frozen:,} parameters",) if frozen and first.optimizer != "none" else (),
            sharding_text(first),
        )


def sized(family: str, sizes: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a *family* of models with *sizes*.

    Raises:
        InputError: a size is missing, or the family has no such size.
    """
    make = FAMILIES[family]
    known = inspect.signature(make).parameters
    missing = [name for name, each in known.items() if each.default is inspect.Parameter.empty and name not in sizes]
    other = [name for name in sizes if name not in known]
    if missing or other:
        told = [f"{family} needs {', '.join(missing)}"] * bool(missing) + [f"{family} has no {', '.join(other)}"] * bool(other)
        raise InputError("; ".join(told))
    return make(**sizes)
