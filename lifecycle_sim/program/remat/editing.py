"""The edit: what a captured step becomes when calls of modules are checkpointed without re-entering autograd. It is exact.

What torch does, and what follows for memory (``torch.utils.checkpoint`` with ``use_reentrant=False``, as in PyTorch 2.13):

* In a checkpointed call autograd holds nothing of what it saves. The call's inputs are held from its beginning until the last saved tensor
  is released: they are the boundary. A storage that several calls have as input is held by each of them, and counts once.
* The first time that a backward node asks for something saved, the call runs again from its inputs, up to the last tensor that it saved:
  there it stops early. All that it allocates on the way counts; what was saved stays until a node takes it.
* A tensor that was computed again goes with the end of the node's work; an ordinary saved tensor stays until the engine releases it, a
  little later.
* A checkpointed call in another saves its inputs there, so that its own recomputation has to wait for the outer one.
* What a policy saves is held from the forward pass on, and its operator does not run again.

Natural lifetimes are never changed: what the program itself refers to stays for as long as it does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Category
from lifecycle_sim.program.remat.again import Again
from lifecycle_sim.program.remat.frames import Frame, Key
from lifecycle_sim.program.remat.holds import Account, Event, Happens
from lifecycle_sim.program.step_graph import NO_STORAGE, Mark, StepGraph


@dataclass(frozen=True)
class Edit:
    """A step with calls checkpointed.

    Attributes:
        graph: the step as it was captured.
        calls: the checkpointed calls.
        events: what happens, in order.
        first_new: the number of the first storage that is a copy.
        copies: for each copy the storage that it is one of; ``NO_STORAGE`` for the state of a random number generator.
        sizes: bytes of each copy.
        notes: what differs in the values, though not in the bytes.
        own: label and category of copies that are of a kind of their own, such as the buffer of a gathered parameter.
    """

    graph: StepGraph
    calls: frozenset[int]
    events: tuple[Event, ...]
    first_new: int
    copies: tuple[int, ...]
    sizes: tuple[int, ...]
    notes: tuple[str, ...] = ()
    own: Mapping[int, tuple[str, Category]] = field(default_factory=dict)

    @property
    def again(self) -> tuple[int, ...]:
        """The operators that run again, in order."""
        return tuple(event.value for event in self.events if event.happens is Happens.AGAIN)

    def size(self, storage: int) -> int:
        """Return the bytes of *storage*, which may be a copy."""
        return self.graph.sizes[storage] if storage < self.first_new else self.sizes[storage - self.first_new]

    def rows(self) -> list[tuple[str, int, int]]:
        """Return for each operator its name, the most bytes while it runs, and the bytes after it, above those of before the step.

        The first row is what comes before the first operator, called ``start``.
        """
        level = high = 0
        name, found = "start", []
        operators = self.graph.operators
        for happens, value, _, _ in self.events:
            if happens is Happens.ALLOC:
                level += self.size(value)
                high = max(high, level)
            elif happens is Happens.FREE:
                level -= self.size(value)
            else:
                found.append((name, high, level))
                name, high = operators[value].name, level
        return [*found, (name, high, level)]


def edit(
    graph: StepGraph,
    calls: Collection[int] = (),
    saved: Collection[int] = (),
    early_stop: bool = True,
    rng_state: int = 0,
    first_new: int | None = None,
) -> Edit:
    """Return *graph* with *calls* checkpointed.

    Args:
        graph: a captured step.
        calls: numbers of the calls of modules.
        saved: numbers of the forward operators whose outputs a policy saves inside of them.
        early_stop: whether a recomputation ends at the last tensor that is needed.
        rng_state: bytes of the random number generator's state that each call keeps on the device, 0 where it is on the host.
        first_new: the number for the first copy; by default one more than the largest storage.

    Raises:
        InputError: the edit would not be exact, or the step would not be the same; the reason says why.
    """
    if calls and graph.unsound is not None:
        raise InputError(f"{graph.name}: {graph.unsound}: a what-if about it would not be exact")
    run = Run(graph, frozenset(calls), frozenset(saved), early_stop, rng_state, first_new)
    run.go()
    account = run.account
    return Edit(
        graph,
        frozenset(calls),
        tuple(account.events),
        run.first_new,
        tuple(account.copies),
        tuple(account.sizes),
        tuple(run.notes),
    )


class Run:
    """Goes through the marks of a step once, and through those of each checkpointed call again."""

    def __init__(
        self, graph: StepGraph, calls: frozenset[int], saved: frozenset[int], early_stop: bool, rng_state: int, first_new: int | None
    ) -> None:
        self.graph, self.calls, self.saved, self.early_stop, self.rng_state = graph, calls, saved, early_stop, rng_state
        self.first_new = max(graph.sizes, default=-1) + 1 if first_new is None else first_new
        self.account = Account(graph, self.first_new)
        self.account.begin(graph.older)
        self.notes: dict[str, None] = {}
        self._stack: list[Frame] = []
        self._owner: dict[int, Frame] = {}
        self._out: dict[int, int] = {}
        self._taken: dict[int, list[int | None]] = {}
        self.released: set[Key] = set()
        self.gone: set[int] = set()
        self._pass = 0
        self._keeping: tuple[dict[int, int], frozenset[int]] | None = None

    def go(self) -> None:
        """Go through the step."""
        account, graph = self.account, self.graph
        for position, (kind, value) in enumerate(graph.marks()):
            account.at = position
            if kind == Mark.OPERATOR:
                account.ran(value)
                self._keeping = self._keep(value) if self._stack and value in self.saved else None
            elif kind == Mark.ALLOC:
                if not account.is_live(value):  # a workspace may have been needed before
                    account.alloc(value)
                if self._keeping is not None and value in self._keeping[1]:
                    account.hold(value)
                    self._keeping[0][value] = value
            elif kind == Mark.FREE:
                self.gone.add(value)
                account.drop(value)
            elif kind == Mark.SAVE:
                self._save(value)
            elif kind == Mark.UNPACK:
                self._unpack(value)
            elif kind == Mark.APPLIED:
                self._applied(value)
            elif kind == Mark.RELEASE:
                self._release(value)
            elif kind == Mark.ENTER:
                self._enter(value)
            elif kind == Mark.LEAVE:
                if self._stack and self._stack[-1].call == value:
                    frame = self._stack.pop()
                    frame.closed = True
                    self._end_if_released(frame)
            elif kind == Mark.BACKWARD:
                self._pass = value + 1

    # ── holds of the step as it was, and of regions ─────────────────────────────────────────────────────────────────────────────────

    def storage(self, hold: int) -> int | None:
        """Return the storage that *hold* keeps alive, None if it is lasting or has no bytes."""
        storage, lasting = self.graph.holds[hold]
        return None if lasting or storage == NO_STORAGE else storage

    def _save(self, hold: int) -> None:
        if self._stack:
            frame = self._owner[hold] = self._stack[-1]
            frame.total += 1
            frame.left += 1
        else:
            self._out[hold] = 1
            storage = self.storage(hold)
            if storage is not None:
                self.account.hold(storage)

    def _unpack(self, hold: int) -> None:
        frame = self._owner.get(hold)
        if frame is None:
            self._out[hold] += 1
            return
        self._compute_again(frame)
        found = frame.again[self._pass]
        if hold not in found:
            raise self.refused(frame, "autograd asks twice for a tensor saved in it, which checkpointing does not allow")
        self._taken.setdefault(hold, []).append(found.pop(hold))

    def _applied(self, hold: int) -> None:
        if hold in self._owner:
            self.account.drop(self._taken[hold].pop(0))
        else:
            self._let_go(hold)

    def _release(self, hold: int) -> None:
        frame = self._owner.get(hold)
        if frame is None:
            self._let_go(hold)
        else:
            self._released_in(frame, hold)

    def _let_go(self, hold: int) -> None:
        storage = self.storage(hold)
        if storage is None:
            return
        self._out[hold] -= 1
        if not self._out[hold]:
            self.account.drop(storage)

    def _released_in(self, frame: Frame, key: Key) -> None:
        self.released.add(key)
        for found in frame.again.values():
            self.account.drop(found.pop(key, None))
        frame.left -= 1
        self._end_if_released(frame)

    def _end_if_released(self, frame: Frame) -> None:
        if frame.left or not frame.closed or frame.ended:
            return
        frame.ended = True
        for storage in frame.held:
            self.account.drop(storage)
        for copies in frame.kept.values():
            for storage in copies.values():
                self.account.drop(storage)
        if frame.parent is not None:
            for place in range(len(self.graph.calls[frame.call].inputs)):
                self._released_in(frame.parent, (frame.call, place))

    # ── the forward pass of a region ────────────────────────────────────────────────────────────────────────────────────────────────

    def _enter(self, number: int) -> None:
        if number not in self.calls:
            return
        call, account = self.graph.calls[number], self.account
        start, stop = self.graph.bounds[number]
        frame = Frame(number, start, stop, self._stack[-1] if self._stack else None)
        if self.rng_state:
            frame.held.append(account.copy(NO_STORAGE, self.rng_state))
        for place, storage in enumerate(call.inputs):
            if frame.parent is not None:
                frame.inputs.append((storage, (number, place)))
                frame.parent.total += 1
                frame.parent.left += 1
            elif storage != NO_STORAGE:
                self._hold_input(frame, storage)
        for storage in call.others:
            self._hold_input(frame, storage)
        given = [storage for storage in call.inputs if storage != NO_STORAGE]
        if len(set(given)) < len(given):
            self.notes[
                f"{call.module} is called with one storage in several places: run again, it gets tensors that are no longer one object, "
                "and if it compares them, as nn.MultiheadAttention does, torch raises a CheckpointError"
            ] = None
        self._stack.append(frame)

    def _hold_input(self, frame: Frame, storage: int) -> None:
        frame.inputs.append((storage, None))
        if self.account.is_live(storage):
            self.account.hold(storage)
            frame.held.append(storage)

    def _keep(self, operator: int) -> tuple[dict[int, int], frozenset[int]]:
        """A policy saves the outputs of *operator*: hold those that are there, and return where to note those that it allocates."""
        frame, row = self._stack[-1], self.graph.operators[operator]
        if frame.parent is not None:
            raise self.refused(frame, "a policy in a checkpointed call that is in another is not known")
        if row.mutates:
            raise self.refused(frame, f"the policy saves {row.name}, which changes its input in place")
        kept = frame.kept[operator] = {}
        frame.kept_at[operator] = self.account.at
        for storage in row.writes:
            if self.account.is_live(storage):
                self.account.hold(storage)
                kept[storage] = storage
        return kept, frozenset(row.writes)

    # ── computing again ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _compute_again(self, frame: Frame) -> None:
        """Run the call of *frame* again, if this backward pass did not do so yet."""
        if self._pass in frame.again:
            return
        account = self.account
        outside: dict[int, int | None] = {}
        borrowed: list[int | None] = []
        for storage, key in frame.inputs:
            if key is not None and frame.parent is not None:
                self._compute_again(frame.parent)
                found = frame.parent.again[self._pass]
                if key not in found:
                    raise self.refused(frame, "its inputs are asked for twice in one backward pass")
                copy = found.pop(key)
                borrowed.append(copy)
                outside[storage] = copy
            self._must_be_unchanged(frame, storage)
        frame.again[self._pass] = {}
        account.again = True
        state = account.copy(NO_STORAGE, self.rng_state) if self.rng_state else None
        Again(self, frame, outside, frame.again[self._pass]).go()
        account.drop(state)
        for copy in borrowed:
            account.drop(copy)
        account.again = False

    def _must_be_unchanged(self, frame: Frame, storage: int) -> None:
        for position in self.graph.changes.get(storage, ()):
            if frame.start < position < self.account.at:
                where = "it" if position < frame.stop else "something after it"
                raise self.refused(frame, f"{where} changes its input in place, so that it could not be computed again from it")

    def refused(self, frame: Frame, why: str) -> InputError:
        """Return the error that says why the call of *frame* cannot be recomputed exactly."""
        return InputError(f"{self.graph.calls[frame.call].module or 'the model'} cannot be recomputed: {why}")
