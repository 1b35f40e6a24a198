"""Tensors that lie on the host while nobody needs them: what autograd saved, or the optimizer's state.

* ``saved``: each activation that autograd saves is copied to the host once, however often it is saved. On the device it lives on for as
  long as the program itself refers to it and until it is copied. It comes back for the first backward node that asks, into a storage of
  its own, and goes when the last saved tensor in it is released.
* ``optimizer``: the state comes back for the optimizer's first operator that touches it, and goes to the host after the last.

What the streams do meanwhile is the engine's (:mod:`lifecycle_sim.program.engine_copies`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lifecycle_sim.errors import InputError, UnitError
from lifecycle_sim.events import Category
from lifecycle_sim.program.edits.storages import OPTIMIZER, StorageFacts
from lifecycle_sim.program.engine_copies import Course, Do, Item, Link, run_with_copies
from lifecycle_sim.program.remat.editing import Edit
from lifecycle_sim.program.remat.holds import Event, Happens
from lifecycle_sim.program.step_graph import NO_STORAGE, Mark, StepGraph
from lifecycle_sim.units import parse_bytes

SAVED = "saved"
WHAT = (SAVED, OPTIMIZER)
RETURNED = "back from the host"
LEAST = 1 << 20
_RATE = re.compile(r"(.*\S)\s*/\s*s")


def parse_rate(text: str) -> int:
    """Return the bytes a second that *text*, such as ``"25 GB/s"``, stands for.

    Raises:
        UnitError: it is no rate.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"{text!r} is no rate: write bytes a second, such as '25 GB/s'")
    rate = parse_bytes(match[1], round_down=True)
    if rate <= 0:
        raise UnitError(f"{text!r}: a link carries more than nothing")
    return rate


@dataclass(frozen=True)
class Offload:
    """What goes to the host, and over what.

    Attributes:
        what: of ``WHAT``.
        link: the way there.
        least: bytes below which a tensor stays.
    """

    what: tuple[str, ...]
    link: Link
    least: int = LEAST

    def __post_init__(self) -> None:
        unknown = [name for name in self.what if name not in WHAT]
        if unknown or not self.what:
            raise InputError(f"offload {', '.join(map(repr, unknown)) or 'of nothing'} is not known: choose of {', '.join(WHAT)}")


@dataclass(frozen=True)
class Transfers:
    """What the copies of a step come to.

    Attributes:
        tensors: how many go to the host.
        sent, fetched: bytes to the host and back.
        host_peak: the most bytes on the host.
        compute: nanoseconds of the step's operators.
        makespan: nanoseconds of the step with the copies.
        exposed: nanoseconds by which the copies make the step longer.
    """

    tensors: int
    sent: int
    fetched: int
    host_peak: int
    compute: int
    makespan: int

    @property
    def exposed(self) -> int:
        """Nanoseconds by which the copies make the step longer."""
        return self.makespan - self.compute


def offload(edit: Edit, facts: Mapping[int, StorageFacts], offloaded: Offload, durations: Sequence[int]) -> tuple[Edit, Transfers]:
    """Return *edit* with tensors on the host for a while, and what the copies come to.

    Args:
        edit: the step.
        facts: what is known of its storages.
        offloaded: what goes to the host.
        durations: nanoseconds of each operator of the step.

    Raises:
        InputError: saved tensors are to go, and calls of modules are recomputed.
    """
    if SAVED in offloaded.what and edit.calls:
        raise InputError(
            "offload saved: with modules recomputed, what autograd saves lies in regions that a capture without offload does not tell "
            "apart: recompute some modules or send saved tensors to the host, not both"
        )
    if edit.graph.unsound is not None:
        raise InputError(f"{edit.graph.name}: {edit.graph.unsound}: what could lie on the host meanwhile is not known")
    work = _Work(edit, facts, offloaded, durations)
    items = work.items()
    away = sorted(work.away)
    course = run_with_copies(items, edit.size, offloaded.link, away)
    compute = sum(item.duration for item in items)
    sent = {item.value for item in items if item.do is Do.SEND}
    transfers = Transfers(len(sent), course.sent, course.fetched, course.host_peak, compute, course.makespan)
    return work.edited(course), transfers


class _Work:
    """Makes the items of compute of an edited step, and its events of what the engine made of them."""

    def __init__(self, edit: Edit, facts: Mapping[int, StorageFacts], offloaded: Offload, durations: Sequence[int]) -> None:
        self._edit, self._facts, self._durations = edit, facts, durations
        self._at_mark: dict[int, list[Item]] = {}
        self._marks: list[int] = []
        self._note_where_fetching_begins()
        self._saved = self._saved_storages(offloaded.least) if SAVED in offloaded.what else {}
        self._states = self._state_storages(offloaded.least) if OPTIMIZER in offloaded.what else {}
        self.away = {storage for storage in self._states if storage not in edit.graph.made}
        self._gone = self._saved.keys() | self._states.keys()

    def _saved_storages(self, least: int) -> dict[int, None]:
        """The activations that autograd saves; notes what happens to them at which marks."""
        graph, facts = self._edit.graph, self._facts
        first: dict[int, dict[Mark, int]] = {}
        chosen: dict[int, None] = {}
        operators_before = _phases(graph)
        for position, (kind, value) in enumerate(graph.marks()):
            if kind in (Mark.SAVE, Mark.UNPACK, Mark.APPLIED, Mark.RELEASE):
                storage, lasting = graph.holds[value]
                if lasting or storage == NO_STORAGE or storage not in graph.made or graph.sizes[storage] < least:
                    continue
                if facts[storage].category is not Category.ACTIVATION or operators_before[graph.made[storage]] != "forward":
                    continue
                chosen[storage] = None
                places = first.setdefault(storage, {})
                if kind in (Mark.SAVE, Mark.UNPACK):
                    places.setdefault(Mark(kind), position)
                else:
                    places[Mark.RELEASE] = position
            elif kind == Mark.FREE and value in first:
                first[value][Mark.FREE] = position
        for storage, places in first.items():
            self._note(places[Mark.SAVE], Do.SEND, storage)
            if Mark.FREE in places:
                self._note(places[Mark.FREE], Do.LEAVE, storage)
            if Mark.UNPACK in places:
                self._note(places[Mark.UNPACK], Do.NEED, storage)
                self._note(places[Mark.RELEASE], Do.DROP, storage)
        return chosen

    def _note_where_fetching_begins(self) -> None:
        graph = self._edit.graph
        begin = next((position for position, kind in enumerate(graph.kinds) if kind == Mark.BACKWARD), None)
        if begin is not None:
            self._note(begin, Do.FETCH, 0)

    def _state_storages(self, least: int) -> dict[int, None]:
        graph = self._edit.graph
        touched: dict[int, list[int]] = {}
        places = [position for position, kind in enumerate(graph.kinds) if kind == Mark.OPERATOR]
        for number, row in enumerate(graph.operators):
            if row.phase == OPTIMIZER:
                for storage in dict.fromkeys((*row.reads, *row.writes)):
                    if self._facts[storage].category is Category.OPTIMIZER_STATE and graph.sizes[storage] >= least:
                        touched.setdefault(storage, []).append(number)
        for storage, used in touched.items():
            if storage not in graph.made:
                self._note(places[used[0]], Do.NEED, storage)
            end = places[used[-1] + 1] if used[-1] + 1 < len(places) else len(graph.kinds)
            self._note(end, Do.SEND, storage)
            self._note(end, Do.LEAVE, storage)
        return dict.fromkeys(touched)

    def _note(self, mark: int, do: Do, storage: int) -> None:
        self._at_mark.setdefault(mark, []).append(Item(do, storage))

    def items(self) -> list[Item]:
        """Return what compute does: the events of the step, and at their marks what is sent, needed and dropped."""
        found: list[Item] = []
        pending = sorted(self._at_mark)
        at = 0

        def notes(until: int) -> None:
            nonlocal at
            while at < len(pending) and pending[at] <= until:
                found.extend(self._at_mark[pending[at]])
                self._marks.extend([pending[at]] * len(self._at_mark[pending[at]]))
                at += 1

        for number, event in enumerate(self._edit.events):
            runs = event.happens in (Happens.OPERATOR, Happens.AGAIN)
            notes(event.mark if runs else event.mark - 1)
            if event.happens is Happens.FREE and event.value in self._gone:
                continue
            found.append(Item(Do.RUN if runs else Do.TELL, number, self._durations[event.value] if runs else 0))
            self._marks.append(event.mark)
        notes(len(self._edit.graph.kinds))
        return found

    def edited(self, course: Course) -> Edit:
        """Return the step as the engine ran it."""
        edit = self._edit
        copies, sizes, own = list(edit.copies), list(edit.sizes), dict(edit.own)
        back: dict[int, int] = {}
        last = len(edit.graph.kinds) - 1
        events = []
        for at, do, value in course.order:
            if do in (Do.RUN, Do.TELL):
                events.append(edit.events[value])
                continue
            mark = min(self._marks[at], last)
            if do is Do.NEED:
                back[value] = edit.first_new + len(copies)
                copies.append(value)
                sizes.append(edit.size(value))
                own[back[value]] = (RETURNED, self._facts[value].category)
                events.append(Event(Happens.ALLOC, back[value], mark))
            else:
                came_back = do is Do.DROP or value in self.away
                events.append(Event(Happens.FREE, back[value] if came_back else value, mark))
        return replace(edit, events=tuple(events), copies=tuple(copies), sizes=tuple(sizes), own=own)


def _phases(graph: StepGraph) -> list[str]:
    """The phase of the operator at, or last before, each mark."""
    phase, found = "", []
    for kind, value in graph.marks():
        if kind == Mark.OPERATOR:
            phase = graph.operators[value].phase
        found.append(phase)
    return found
