"""The engine: runs a Program on SimPy's clock and writes down the Trace.

SimPy orders what happens at one time by creation, which nobody who writes a scenario can see. So nothing here rests on that: the ends
of operators at one instant are collected, and one *round* then applies them in program order, with frees and starts in the order that
the program's same-instant rule says. All times are integers, and the clock always runs dry: no horizon can cut off the last frees.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Assumption, Basis, Category, DeviceTrace, Evidence, Frame, Kind, Span, Trace
from lifecycle_sim.program.check import problems
from lifecycle_sim.program.graph import CapacityMode, Lives, Operator, Program, SameInstant, edges, operators_of, ordered_events
from lifecycle_sim.program.ledger import Generation, Ledger
from lifecycle_sim.program.places import Place

_LONGEST_LIST = 8


def run(program: Program) -> Trace:
    """Run *program* and return what happened, in payload bytes.

    The trace's ``settings`` say by which rules: ``same_instant``, ``capacity_mode``, ``parameters``, the names of the streams, the
    ``horizon``, the time at which the last thing ended (``makespan``), and for each operator that waited for room how long (``waited``).

    Raises:
        ScenarioError: the program has problems (all are listed), or its operators wait for room for ever.
    """
    found = problems(program)
    if found:
        raise ScenarioError(found)
    ledger = Ledger()
    settings: dict[str, Any] = {
        "title": program.title,
        "parameters": dict(program.parameters),
        "streams": list(program.streams),
        "same_instant": program.same_instant.value,
        "capacity_mode": program.capacity.mode.value if program.capacity else None,
        "horizon": program.horizon,
    }
    spans: list[Span] = []
    if program.operators:
        course = _Course(program, ledger)
        course.play()
        spans = course.spans
        settings |= {"makespan": int(course.clock.now), "waited": course.waited}
    else:
        settings |= {"makespan": _play_events(program, ledger)}
    device = DeviceTrace(
        device=program.device,
        events=ledger.events(),
        basis=Basis.PAYLOAD,
        start=0,
        spans=tuple(sorted(spans, key=lambda span: (span.start, -span.stop))),
        capacity=program.capacity.size if program.capacity else None,
    )
    return Trace(
        devices=(device,),
        format="scenario",
        evidence=Evidence.SIMULATED,
        clock=program.clock,
        stacks=ledger.stacks.table(),
        labels=ledger.labels,
        settings=settings,
        assumptions=_empty_storages(program),
    )


def _empty_storages(program: Program) -> tuple[Assumption, ...]:
    """Say how many storages have no bytes, as where a parameter is 0: they count as storages and hold nothing."""
    empty = sum(storage.size == 0 and storage.shares is None for storage in program.storages)
    zero = ", ".join(f"{name} = 0" for name, value in program.parameters.items() if value == 0)
    text = f"storages have a size of 0 B{f' ({zero})' if zero else ''}: they are counted and hold nothing"
    return (Assumption("empty_storages", empty, text, 0),) if empty else ()


def replay_through_engine(device: DeviceTrace) -> tuple[int, ...]:
    """Play the recorded events of *device* on SimPy's clock; return the level in bytes after each of them, as Python integers.

    The recorded order is kept; a time that runs backwards is only a label and does not turn the clock back. The first level counts
    from the trace's ``start``, or from 0 where it has none.
    """
    import simpy

    events = device.events
    sign = {Kind.ALLOC: 1, Kind.FREE: -1, Kind.FREE_COMPLETED: -1}
    deltas = [sign.get(Kind(kind), 0) * size for kind, size in zip(events.kind.tolist(), events.size.tolist(), strict=True)]
    times = events.time.tolist()
    levels: list[int] = []
    clock = simpy.Environment(initial_time=times[0] if times else 0)

    def player() -> Generator[Any, None, None]:
        level = device.start or 0
        index = 0
        while index < len(deltas):
            if times[index] > clock.now:
                yield clock.timeout(times[index] - clock.now)
            while index < len(deltas) and times[index] <= clock.now:
                level += deltas[index]
                levels.append(level)
                index += 1

    clock.process(player())
    clock.run()
    return tuple(levels)


def _frame(program: Program, owner: str | None, name: str, place: Place) -> Frame:
    """Return the frame that owns an allocation: the owner that the scenario states, else what allocates, called *name*, at its line."""
    return Frame(name, program.source, place.line) if owner is None else Frame(owner, program.source, 0)


def _play_events(program: Program, ledger: Ledger) -> int:
    """Play planned events, all of one instant at one tick of the clock; return the time of the last."""
    import simpy

    clock = simpy.Environment()
    storages = {storage.name: storage for storage in program.storages}
    streams = {name: number for number, name in enumerate(program.streams)}

    def player() -> Generator[Any, None, None]:
        for event in ordered_events(program):
            if event.at > clock.now:
                yield clock.timeout(event.at - clock.now)
            if event.kind is Kind.ALLOC:
                storage = storages[event.name]
                frame = _frame(program, storage.owner, storage.name, storage.place)
                ledger.begin(event.at, event.name, storage.size, storage.category, streams[event.stream], frame)
            elif event.kind is Kind.SHARE:
                ledger.share(event.at, event.name, event.alias or event.name)
            else:
                ledger.drop(event.at, event.name)

    clock.process(player())
    clock.run()
    return int(clock.now)


@dataclass
class _Plan:
    """The operators of one step: whom each lets go on, for how many it waits, and which step-lived names it uses."""

    operators: tuple[Operator, ...]
    followers: list[list[int]]
    waits: list[int]
    uses: list[tuple[str, ...]]

    @classmethod
    def of(cls, program: Program, step: int) -> _Plan:
        operators = operators_of(program, step)
        followers: list[list[int]] = [[] for _ in operators]
        waits = [0] * len(operators)
        for edge in edges(program, operators):
            followers[edge.before].append(edge.after)
            waits[edge.after] += 1
        storages = {storage.name: storage for storage in program.storages}
        made: set[str] = set()
        uses = []
        for operator in operators:
            names = dict.fromkeys((*operator.reads, *operator.writes))
            makes = [name for name in operator.writes if storages[name].shares and name not in made]
            made.update(makes)
            names |= dict.fromkeys(storages[name].shares or name for name in makes)
            uses.append(tuple(name for name in names if storages[name].lives is Lives.STEP))
        return cls(operators, followers, waits, uses)


class _Course:
    """One run of the operators, step by step."""

    def __init__(self, program: Program, ledger: Ledger) -> None:
        import simpy

        self.clock = simpy.Environment()
        self.spans: list[Span] = []
        self.waited: dict[str, int] = {}
        self._program = program
        self._ledger = ledger
        self._storages = {storage.name: storage for storage in program.storages}
        self._streams = {name: number for number, name in enumerate(program.streams)}
        self._room = program.capacity.size if program.capacity and program.capacity.mode is CapacityMode.WAIT else None
        self._steps = program.steps or 1
        self._first = _Plan.of(program, 1)
        self._later = _Plan.of(program, 2) if self._steps > 1 else self._first
        self._over: list[int] = []
        self._temporaries: dict[int, list[Generation]] = {}

    def play(self) -> None:
        """Run until everything has ended.

        Raises:
            ScenarioError: operators wait for room that no running operator will make.
        """
        for storage in self._program.storages:
            if storage.lives is Lives.GIVEN:
                self._acquire(storage.name, 0, storage.name, storage.place)
        self._begin_step(1)
        self.clock.run()
        if self._unfinished:
            raise ScenarioError(self._deadlock())

    def _begin_step(self, step: int) -> None:
        self._step = step
        self._plan = self._first if step == 1 else self._later
        self._unfinished = len(self._plan.operators)
        self._waits = list(self._plan.waits)
        self._users: dict[str, int] = {}
        for names in self._plan.uses:
            for name in names:
                self._users[name] = self._users.get(name, 0) + 1
        self._ready: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._smallest_need = 0
        self._make_ready(index for index, waits in enumerate(self._waits) if not waits)
        self._step_start = len(self._ledger)
        self._starts: dict[int, int] = {}
        self._phases: dict[str, list[int]] = {}
        self._call_round()

    def _call_round(self) -> None:
        """Ask for a round at this instant, after every end that is due now."""
        event = self.clock.event()
        event.callbacks.append(self._round)
        event.succeed()

    def _ended(self, timeout: Any) -> None:
        if not self._over:
            self._call_round()
        self._over.append(timeout.value)

    def _round(self, _: Any) -> None:
        """Apply the ends of this instant and start what can start, in the order of the same-instant rule."""
        over, self._over = sorted(self._over), []
        next_ones = sorted(follower for index in over for follower in self._plan.followers[index] if self._let_go(follower))
        for index in over:
            self._free_by_order(index)
        if self._program.same_instant is SameInstant.ALLOCS_FIRST:
            self._make_ready(next_ones)
            self._start_ready()
            next_ones = []
        for index in over:
            self._end(index)
        self._make_ready(next_ones)
        self._start_ready()
        self._unfinished -= len(over)
        if not self._unfinished:
            self._end_step()

    def _let_go(self, index: int) -> bool:
        self._waits[index] -= 1
        return not self._waits[index]

    def _make_ready(self, indices: Iterable[int]) -> None:
        """Line operators up with the time and their need. The need stays as it is: whoever else writes what they write has to wait."""
        for index in indices:
            need = self._need(index)
            self._smallest_need = min(self._smallest_need, need) if self._ready else need
            self._ready[index] = int(self.clock.now), need

    def _start_ready(self) -> None:
        """Start every ready operator that has room, those that wait longest first; one without room lets the next ones try."""
        started: dict[int, None] = {}
        for index, (since, need) in self._ready.items():
            left = need if self._room is None else self._room - self._ledger.level
            if left < self._smallest_need:
                break
            if need <= left:
                self._start(index, int(self.clock.now) - since)
                started[index] = None
        else:
            self._smallest_need = min((need for index, (_, need) in self._ready.items() if index not in started), default=0)
        for index in started:
            del self._ready[index]

    def _need(self, index: int) -> int:
        operator = self._plan.operators[index]
        new = [self._storages[name] for name in operator.writes if name not in self._ledger.live]
        return sum(storage.size for storage in new if storage.shares is None) + sum(operator.temporaries)

    def _start(self, index: int, waited: int) -> None:
        operator = self._plan.operators[index]
        now, stream = int(self.clock.now), self._streams[operator.stream]
        self._starts[index] = len(self._ledger)
        if operator.phase is not None:
            self._phases.setdefault(operator.phase, [len(self._ledger), 0])
        for name in operator.writes:
            if name not in self._ledger.live:
                self._acquire(name, stream, operator.name, operator.place)
        frame = _frame(self._program, None, operator.name, operator.place)
        several = len(operator.temporaries) > 1
        self._temporaries[index] = [
            self._ledger.alloc(now, f"{operator.name}.temporary{number if several else ''}", size, Category.TEMPORARY, stream, frame)
            for number, size in enumerate(operator.temporaries)
        ]
        if waited:
            self.waited[operator.name] = self.waited.get(operator.name, 0) + waited
        self.clock.timeout(operator.duration, value=index).callbacks.append(self._ended)

    def _acquire(self, name: str, stream: int, by: str, place: Place) -> None:
        storage, now = self._storages[name], int(self.clock.now)
        if storage.shares is not None:
            self._ledger.share(now, storage.shares, name)
        else:
            frame = _frame(self._program, storage.owner, by, place)
            self._ledger.begin(now, name, storage.size, storage.category, stream, frame)

    def _free_by_order(self, index: int) -> None:
        """Free what the operator frees: its own work, so done before whoever waits for it starts, by either rule."""
        for name in self._plan.operators[index].frees:
            self._ledger.drop(int(self.clock.now), name)

    def _end(self, index: int) -> None:
        """Let go what nobody needs any more now that the operator has ended."""
        operator, now = self._plan.operators[index], int(self.clock.now)
        for generation in self._temporaries.pop(index):
            self._ledger.free(now, generation)
        for name in self._plan.uses[index]:
            self._users[name] -= 1
            if not self._users[name]:
                self._ledger.drop(now, name)
        self.spans.append(Span("operator", operator.name, self._starts[index], len(self._ledger)))
        if operator.phase is not None:
            self._phases[operator.phase][1] = len(self._ledger)

    def _end_step(self) -> None:
        if self._program.steps is not None:
            self.spans.append(Span("step", f"step {self._step}", self._step_start, len(self._ledger)))
        self.spans += [Span("phase", phase, start, stop) for phase, (start, stop) in self._phases.items()]
        if self._step < self._steps:
            self._begin_step(self._step + 1)

    def _deadlock(self) -> list[str]:
        """Say who waits for how much, what is live, and who would have to end for it to go."""
        level, room = self._ledger.level, self._room or 0
        step = f" in step {self._step}" if self._program.steps is not None else ""
        lines = [f"deadlock at {self.clock.now} {self._program.clock}{step}: nothing runs, and no operator that is ready has room"]
        for index in list(self._ready)[:_LONGEST_LIST]:
            operator, need = self._plan.operators[index], self._ready[index][1]
            why = f"needs {need:,} B at once: more than the whole capacity" if need > room else f"waits for {need:,} B"
            where = f"{operator.place}: " if str(operator.place) else ""
            lines.append(f"{where}{operator.name!r} {why}; {level:,} of {room:,} B are taken")
        to_come = [(o.name, {*self._plan.uses[i], *o.frees}) for i, o in enumerate(self._plan.operators) if i not in self._starts]
        for name, generation in sorted(self._ledger.live.items(), key=lambda item: (-item[1].size, item[0]))[:_LONGEST_LIST]:
            users = [operator for operator, names in to_come if name in names]
            until = (
                f"until {', '.join(map(repr, users[:3]))} {'has' if len(users) == 1 else 'have'} ended" if users else "throughout this step"
            )
            lines.append(f"{name!r} holds {generation.size:,} B {until}")
        return lines
