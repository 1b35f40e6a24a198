"""A stack of blocks trained for one step: simulated storage by storage under any plan, and the same as holds for the rows.

The simulator is the oracle: it walks forward and backward with a set of live storages and knows no rows. A block has parts; each part
makes tensors that are saved for its backward. A whole block or a single part may be recomputed. A mask is shared by all blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

from lifecycle_sim.program.remat.problem import Candidate, RegionProblem, if_chosen, unless_chosen
from lifecycle_sim.program.remat.rows import Hold, Rerun, rows_of_holds


@dataclass(frozen=True)
class Part:
    """One part of a block: bytes it saves, bytes of its output (the next part's input, not saved by itself), a temporary, its cost."""

    saved: int
    output: int
    temporary: int
    cost: int


@dataclass(frozen=True)
class Stack:
    """Blocks of parts between an input and a head; ``mask`` bytes are saved by the first part of every block, once for all of them."""

    blocks: tuple[tuple[Part, ...], ...]
    entry: int
    head: int
    mask: int = 0
    parts_too: bool = True

    def candidates(self) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
        """Names with the (block, part) pairs that each recomputes."""
        found = []
        for b, block in enumerate(self.blocks):
            found.append((f"blocks.{b}", tuple((b, p) for p in range(len(block)))))
            if self.parts_too and len(block) > 1:
                found += [(f"blocks.{b}.part_{chr(97 + p)}", ((b, p),)) for p in range(len(block))]
        return found


def simulate(stack: Stack, plan: tuple[str, ...]) -> int:
    """The peak of a step under *plan*, by walking it."""
    regions = {name: parts for name, parts in stack.candidates() if name in plan}
    region_of = {part: name for name, parts in regions.items() for part in parts}
    live: dict[object, int] = {}
    peak = 0

    def hold(key: object, size: int) -> None:
        nonlocal peak
        live[key] = size
        peak = max(peak, sum(live.values()))

    def input_of(b: int, p: int) -> object:
        return ("out", b, p - 1) if p else ("out", b - 1, len(stack.blocks[b - 1]) - 1) if b else ("entry",)

    users: dict[object, set[object]] = {}  # who holds a storage beside the walk itself

    def let_go(key: object, user: object) -> None:
        users[key].discard(user)
        if not users[key]:
            live.pop(key, None)

    order = [(b, p) for b, block in enumerate(stack.blocks) for p in range(len(block))]
    hold(("entry",), stack.entry)
    users[("entry",)] = {"walk"}
    if stack.mask:
        hold("mask", stack.mask)
        users["mask"] = {"walk"}
    for b, p in order:
        part, region = stack.blocks[b][p], region_of.get((b, p))
        source = input_of(b, p)
        first_of_region = region is not None and regions[region][0] == (b, p)
        if first_of_region:
            users[source].add(region)
        if region is None:
            hold(("saved", b, p), part.saved)
            if stack.mask and p == 0:
                users["mask"].add((b, p))
        elif stack.mask and p == 0 and first_of_region:
            users["mask"].add(region)  # an argument of the region
        hold(("temporary", b, p), part.temporary)
        hold(("out", b, p), part.output)
        users[("out", b, p)] = {"walk"}
        live.pop(("temporary", b, p))
        let_go(source, "walk")
    if stack.mask:
        let_go("mask", "walk")
    hold("head", stack.head)
    let_go(("out", *order[-1]), "walk")
    hold("gradient", stack.blocks[-1][-1].output)
    live.pop("head")
    again: set[str] = set()
    for b, p in reversed(order):
        part, region = stack.blocks[b][p], region_of.get((b, p))
        if region is not None and region not in again:
            again.add(region)
            for c, q in regions[region]:  # run the region's forward again, up to what its last part saves
                inner = stack.blocks[c][q]
                hold(("saved", c, q), inner.saved)
                if (c, q) != regions[region][-1]:
                    hold(("temporary", c, q), inner.temporary)
                    hold(("again", c, q), inner.output)
                    live.pop(("temporary", c, q))
                live.pop(("again", c, q - 1), None)
        hold(("gradient", b, p), stack.blocks[b][p - 1].output if p else (stack.blocks[b - 1][-1].output if b else stack.entry))
        live.pop("gradient")
        live["gradient"] = live.pop(("gradient", b, p))
        live.pop(("saved", b, p))
        if region is None:
            if stack.mask and p == 0:
                let_go("mask", (b, p))
        elif regions[region][0] == (b, p):
            let_go(input_of(b, p), region)
            if stack.mask and p == 0:
                let_go("mask", region)
    return peak


def holds_of(stack: Stack) -> tuple[list[Hold], list[Rerun]]:
    """The stack's holds written down event by event, from one walk without recomputation."""
    named = stack.candidates()
    numbers = {name: number for number, (name, _) in enumerate(named)}
    covering: dict[tuple[int, int], list[int]] = {}
    for name, parts in named:
        for part in parts:
            covering.setdefault(part, []).append(numbers[name])
    clock = count()
    holds: list[Hold] = []
    order = [(b, p) for b, block in enumerate(stack.blocks) for p in range(len(block))]
    start: dict[object, int] = {("entry",): next(clock)}
    if stack.mask:
        start["mask"] = next(clock)
    saved: dict[tuple[int, int], int] = {}
    entered: dict[tuple[int, int], int] = {}

    def input_of(b: int, p: int) -> object:
        return ("out", b, p - 1) if p else ("out", b - 1, len(stack.blocks[b - 1]) - 1) if b else ("entry",)

    for b, p in order:
        part = stack.blocks[b][p]
        entered[b, p] = next(clock)
        saved[b, p] = next(clock)
        temporary = next(clock)
        start["out", b, p] = next(clock)
        end = next(clock)
        holds.append(Hold(("temporary", b, p), part.temporary, temporary, end))
        source = input_of(b, p)
        holds.append(Hold(source, stack.entry if source == ("entry",) else _output(stack, source), start[source], end))
        start["end", b, p] = end
    end = next(clock)
    if stack.mask:
        holds.append(Hold("mask", stack.mask, start["mask"], end))
    head, gone, gradient, stop = next(clock), next(clock), next(clock), next(clock)
    holds.append(Hold("head", stack.head, head, stop))
    holds.append(Hold(("out", *order[-1]), stack.blocks[-1][-1].output, start["out", *order[-1]], gone))
    reruns: list[Rerun] = []
    begin = gradient
    sizes = {"gradient": stack.blocks[-1][-1].output}
    trigger: dict[tuple[int, int], int] = {}
    ended: dict[tuple[int, int], int] = {}
    for b, p in reversed(order):
        trigger[b, p] = next(clock)
        new = next(clock)
        old_gone = next(clock)
        ended[b, p] = next(clock)
        holds.append(Hold(("gradient", b, p, "of"), sizes["gradient"], begin, old_gone))
        sizes["gradient"] = stack.blocks[b][p - 1].output if p else (stack.blocks[b - 1][-1].output if b else stack.entry)
        begin = new
    holds.append(Hold("last gradient", sizes["gradient"], begin, next(clock)))
    for b, p in order:
        holds.append(Hold(("saved", b, p), stack.blocks[b][p].saved, saved[b, p], ended[b, p], unless_chosen(*covering[b, p])))
        if stack.mask and p == 0:
            holds.append(Hold("mask", stack.mask, entered[b, p], ended[b, p], unless_chosen(*covering[b, p])))
    for name, parts in named:
        number = numbers[name]
        first, last = parts[0], parts[-1]
        source = input_of(*first)
        size = stack.entry if source == ("entry",) else _output(stack, source)
        holds.append(Hold(source, size, entered[first], ended[first], if_chosen(number)))
        if stack.mask and first[1] == 0:
            holds.append(Hold("mask", stack.mask, entered[first], ended[first], if_chosen(number)))
        most = level = 0
        for place, (b, p) in enumerate(parts):
            inner = stack.blocks[b][p]
            holds.append(Hold(("again", number, b, p), inner.saved, trigger[last], ended[b, p], if_chosen(number)))
            level += inner.saved
            most = max(most, level)
            if (b, p) != last:
                most = max(most, level + inner.temporary + inner.output)
                level += inner.output
            if place:
                level -= stack.blocks[parts[place - 1][0]][parts[place - 1][1]].output
        reruns.append(Rerun(frozenset({number}), trigger[last], most, f"{name} again"))
    return holds, reruns


def problem_of(stack: Stack, **changes: object) -> RegionProblem:
    """The stack as a region problem."""
    named = stack.candidates()
    numbers = {name: number for number, (name, _) in enumerate(named)}
    costs = {name: sum(stack.blocks[b][p].cost for b, p in parts) for name, parts in named}
    conflicts = tuple(
        (numbers[one], numbers[other]) for i, (one, a) in enumerate(named) for other, b in named[i + 1 :] if not set(a).isdisjoint(b)
    )
    problem = RegionProblem(
        candidates=tuple(Candidate(name, costs[name]) for name, _ in named),
        rows=rows_of_holds(*holds_of(stack)),
        evaluate=lambda plan: simulate(stack, plan),
        conflicts=conflicts,
    )
    return replace(problem, **changes) if changes else problem


def _output(stack: Stack, source: object) -> int:
    _, b, p = source  # type: ignore[misc]
    return stack.blocks[b][p].output


def even_stack(blocks: int, **changes: object) -> Stack:
    """Blocks alike: attention with a large saved part, then a feed-forward part that costs more than it saves."""
    part = (Part(saved=37 * 2**20, output=4 * 2**20, temporary=6 * 2**20, cost=51), Part(2**24 + 4, 4 * 2**20, 2**20, 68))
    return replace(Stack((part,) * blocks, entry=4 * 2**20, head=50 * 2**20, mask=2**20), **changes)


__all__ = ["Part", "Stack", "even_stack", "holds_of", "problem_of", "simulate"]
