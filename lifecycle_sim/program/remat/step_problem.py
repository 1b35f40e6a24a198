"""A captured step as a region problem: its modules as candidates, its marks as rows, and the exact edit as the judge.

The rows follow the rules of :func:`lifecycle_sim.program.remat.edit`, each as a hold with a condition. What they cannot tell exactly
(such as several backward passes through one call) the edit tells: every plan that is returned was edited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from lifecycle_sim.errors import InputError
from lifecycle_sim.program.remat import Edit, Happens, Region, candidates, edit
from lifecycle_sim.program.remat.problem import Candidate, RegionProblem, if_chosen, unless_chosen
from lifecycle_sim.program.remat.rows import Hold, Rerun, rows_of_holds
from lifecycle_sim.program.remat.symmetry import stacks_by_name
from lifecycle_sim.program.step_graph import NO_CALL, NO_STORAGE, Mark, StepGraph, StepOperator

Price = Callable[[Sequence[StepOperator]], int]
"""What running operators again costs, as a whole number."""


def flops_of(operators: Sequence[StepOperator]) -> int:
    """Return the floating-point operations of *operators*."""
    return sum(row.flops for row in operators)


@dataclass(frozen=True)
class StepProblem:
    """A region problem made of a captured step.

    Attributes:
        problem: the problem; its candidates are called by the paths of modules.
        calls: for each candidate the numbers of its calls in the graph.
        left_out: modules that were asked for and cannot be recomputed, with the reason.
        before: bytes held before the step, part of every peak.
    """

    problem: RegionProblem
    calls: tuple[tuple[int, ...], ...]
    left_out: tuple[tuple[str, str], ...]
    before: int


def usual_modules(graph: StepGraph) -> tuple[str, ...]:
    """Return the modules that a plan chooses from if none are named: blocks, and the larger parts directly in them.

    A block's path ends in its first number, such as ``transformer.h.3``; a part of it counts if it calls modules itself, and so does a
    module outside of blocks that calls modules and no block. Where there is none of all these, every module that the step calls counts.
    """
    paths = dict.fromkeys(region.module for region in candidates(graph))
    blocks = {path for path in paths if _block(path) == path}
    around: set[str] = set()
    parents: set[str] = set()
    for call in graph.calls:
        parent, is_block = call.parent, call.module in blocks
        if parent != NO_CALL:
            parents.add(graph.calls[parent].module)
        while parent != NO_CALL and is_block:
            around.add(graph.calls[parent].module)
            parent = graph.calls[parent].parent
    outer = {call.module for call in graph.calls if call.parent == NO_CALL}
    found = []
    for path in paths:
        block = _block(path)
        if block is None:
            if path in parents and path not in around and path not in outer:
                found.append(path)
        elif path == block or (path.rpartition(".")[0] == block and path in parents):
            found.append(path)
    return tuple(found or (path for path in paths if path not in outer or path not in parents))


def _block(path: str) -> str | None:
    """The path up to its first number, or None if there is none in it."""
    parts = path.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else None


def problem_of_step(
    graph: StepGraph,
    modules: Collection[str] | None = None,
    *,
    before: int | None = None,
    price: Price = flops_of,
    unit: str = "FLOP",
    early_stop: bool = True,
    rng_state: int = 0,
) -> StepProblem:
    """Return the region problem of a captured step.

    A candidate is a module with all its calls in the step. Modules of which one is inside another exclude each other.

    Args:
        graph: the step.
        modules: paths of the modules to choose from; by default :func:`usual_modules`.
        before: bytes held before the step; by default those of the storages that the step names and did not make.
        price: what running operators again costs.
        unit: what the price counts.
        early_stop: whether a recomputation ends at the last tensor that is needed.
        rng_state: bytes of the random number generator's state that each call keeps on the device.

    Raises:
        InputError: no module can be recomputed, or the step is one about which no what-if would be exact.
    """
    wanted = set(usual_modules(graph) if modules is None else modules)
    by_module: dict[str, list[Region]] = {}
    for region in candidates(graph):
        if region.module in wanted:
            by_module.setdefault(region.module, []).append(region)
    left_out = [(path, "nothing is saved in it") for path in sorted(wanted - by_module.keys())]
    alone: dict[str, Edit] = {}
    for path, regions in list(by_module.items()):
        try:
            alone[path] = edit(graph, [region.call for region in regions], (), early_stop, rng_state)
        except InputError as error:
            if graph.unsound is not None:
                raise
            left_out.append((path, str(error)))
            del by_module[path]
    if not by_module:
        raise InputError([f"{graph.name}: no module can be recomputed", *(f"{path}: {why}" for path, why in left_out)])
    paths = list(by_module)
    calls = tuple(tuple(region.call for region in by_module[path]) for path in paths)
    older = sum(graph.sizes[storage] for storage in graph.older)
    held = older if before is None else before
    if held < older:
        raise InputError(f"{graph.name}: {held:,} bytes before the step are less than the {older:,} of the storages that it names")
    events = _StepHolds(graph, calls, held, rng_state)
    for number, path in enumerate(paths):
        events.recomputed(number, by_module[path], alone[path])
    chosen = tuple(Candidate(path, price([graph.operators[place] for place in alone[path].again])) for path in paths)
    numbers = dict(zip(paths, calls, strict=True))

    def evaluate(names: tuple[str, ...]) -> int:
        return held + _peak(edit(graph, [call for name in names for call in numbers[name]], (), early_stop, rng_state))

    problem = RegionProblem(
        candidates=chosen,
        rows=rows_of_holds(events.holds, events.reruns, events.labels()),
        evaluate=evaluate,
        conflicts=tuple(_conflicts(graph, calls)),
        stacks=stacks_by_name(chosen),
        unit=unit,
    )
    return StepProblem(problem, calls, tuple(left_out), held)


def _peak(edited: Edit) -> int:
    """The most bytes above those of before the step."""
    level = high = 0
    for event in edited.events:
        if event.happens is Happens.ALLOC:
            level += edited.size(event.value)
            high = max(high, level)
        elif event.happens is Happens.FREE:
            level -= edited.size(event.value)
    return high


def _conflicts(graph: StepGraph, calls: Sequence[Sequence[int]]) -> Iterable[tuple[int, int]]:
    """Pairs of candidates of which a call of one is inside a call of the other."""
    owner = {call: number for number, own in enumerate(calls) for call in own}
    found = set()
    for call, number in owner.items():
        parent = graph.calls[call].parent
        while parent != NO_CALL:
            if parent in owner and owner[parent] != number:
                found.add((min(number, owner[parent]), max(number, owner[parent])))
            parent = graph.calls[parent].parent
    return sorted(found)


class _StepHolds:
    """The holds of a step, with the conditions under which each is there; an event is a mark."""

    def __init__(self, graph: StepGraph, calls: Sequence[Sequence[int]], before: int, rng_state: int) -> None:
        self.graph, self.rng_state = graph, rng_state
        self.holds: list[Hold] = []
        self.reruns: list[Rerun] = []
        self.end = len(graph.kinds) + 1
        self._owner = {call: number for number, own in enumerate(calls) for call in own}
        self._freed: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._applied: dict[int, int] = {}
        self._released: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._let_go: dict[int, int] = {}
        self._around: dict[int, tuple[int, ...]] = {}
        self._read()
        self._natural(before)
        for hold, start in self._saved.items():
            storage = self._storage(hold)
            if storage is not None:
                around = self._around[hold]
                stop = self._let_go.get(hold, self.end)
                self.holds.append(Hold(storage, graph.sizes[storage], start, stop, unless_chosen(*around) if around else None))

    def _storage(self, hold: int) -> int | None:
        storage, lasting = self.graph.holds[hold]
        return None if lasting or storage == NO_STORAGE else storage

    def _read(self) -> None:
        """Go through the marks once: when each thing happens, and inside of which candidates."""
        inside: list[int] = []
        held: dict[int, int] = {}
        for at, (kind, value) in enumerate(self.graph.marks()):
            if kind == Mark.FREE:
                self._freed[value] = at
            elif kind == Mark.SAVE:
                self._saved[value] = at
                self._around[value] = tuple(dict.fromkeys(inside))
                held[value] = 1
            elif kind == Mark.UNPACK:
                self._asked.setdefault(value, at)
                held[value] = held.get(value, 0) + 1
            elif kind in (Mark.APPLIED, Mark.RELEASE):
                (self._applied if kind == Mark.APPLIED else self._released).setdefault(value, at)
                held[value] = held.get(value, 0) - 1
                if not held[value]:
                    self._let_go[value] = at
            elif kind == Mark.ENTER and value in self._owner:
                inside.append(self._owner[value])
            elif kind == Mark.LEAVE and value in self._owner:
                inside.pop()

    def _natural(self, before: int) -> None:
        graph = self.graph
        for storage, at in graph.made.items():
            self.holds.append(Hold(storage, graph.sizes[storage], at, self._freed.get(storage, self.end)))
        rest = before
        for storage in graph.older:
            size = graph.sizes[storage]
            rest -= size
            self.holds.append(Hold(storage, size, 0, self._freed.get(storage, self.end)))
        if rest > 0:
            self.holds.append(Hold("before the step", rest, 0, self.end))

    def recomputed(self, number: int, regions: Sequence[Region], alone: Edit) -> None:
        """Note what candidate *number* holds if it is recomputed: its inputs, and what it makes again."""
        graph, when = self.graph, if_chosen(number)
        older = set(graph.older)
        for region in regions:
            inside = range(region.start, region.stop)
            own = [hold for hold, at in self._saved.items() if at in inside]
            over = max((self._released.get(hold, self.end) for hold in own), default=self.end)
            for boundary in region.inputs:
                if boundary in graph.made or boundary in older:
                    self.holds.append(Hold(boundary, graph.sizes[boundary], region.start, over, when))
            if self.rng_state:
                self.holds.append(Hold(("state", region.call), self.rng_state, region.start, over, when))
            asked = [self._asked[hold] for hold in own if hold in self._asked]
            if not asked:
                continue
            trigger = min(asked)
            for hold in own:
                storage = self._storage(hold)
                stop = self._applied.get(hold, self._released.get(hold, self.end))
                if storage is None or stop <= trigger:
                    continue
                made_in = graph.made.get(storage, -1) in inside
                copy = (storage, region.call) if made_in else storage
                self.holds.append(Hold(copy, graph.sizes[storage], trigger, stop, when))
            extra = _extra(alone, trigger)
            self.reruns.append(Rerun(frozenset({number}), trigger, extra, f"{region.module} runs again"))

    def labels(self) -> list[str]:
        """What happens at each mark: the operator that runs."""
        found, last = [], "the step begins"
        for kind, value in self.graph.marks():
            if kind == Mark.OPERATOR:
                row = self.graph.operators[value]
                last = row.name + (f" of {row.module}" if row.module else "") + (f" in {row.phase}" if row.phase else "")
            found.append(last)
        return found


def _extra(edited: Edit, at: int) -> int:
    """The most bytes above the level right before mark *at* that are held while what happens there goes on."""
    level = high = 0
    for event in edited.events:
        if event.mark != at:
            continue
        if event.happens is Happens.ALLOC:
            level += edited.size(event.value)
            high = max(high, level)
        elif event.happens is Happens.FREE:
            level -= edited.size(event.value)
    return high
