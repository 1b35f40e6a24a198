"""Runs a line on SimPy's clock.

SimPy orders what happens at one time by creation, which nobody who writes a scenario can see, so nothing rests on that. Its events only
note what is over; then one *round* an instant applies it all, in this order: works that end, by stage and machine, and everything that
moves on because of it, those that wait longest first; then deliveries; then arrivals. An item that comes when another one leaves finds its
place free. A visit takes one event of the clock, and so does a way; arrivals, which are known beforehand, take none.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush, nsmallest
from itertools import islice
from typing import Any

import numpy as np

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.study.pipeline.line import InputUntil, Line, LineCapacity, Order, OutputFrom, Per, SetUp, WhenFull
from lifecycle_sim.study.pipeline.line_check import line_problems
from lifecycle_sim.study.pipeline.line_deadlock import deadlock
from lifecycle_sim.study.pipeline.line_run import NEVER, Agenda, Jobs, LineRun, agenda
from lifecycle_sim.study.pipeline.line_station import Machine, Station


def run_line(line: Line, replication: int = 0) -> LineRun:
    """Run *line* and return what happened.

    Args:
        line: the line.
        replication: which draws to take, from 0. The same number gives the same run, in every process.

    Raises:
        ScenarioError: the line has problems; all are listed. A deadlock is not one: it is a result.
    """
    found = line_problems(line)
    if found:
        raise ScenarioError(found)
    return Course(line, replication).play()


class Course:
    """One run of a line."""

    def __init__(self, line: Line, replication: int) -> None:
        import simpy

        self.clock = simpy.Environment()
        self._timeout = simpy.Timeout
        self.line, self.replication, self.agenda = line, replication, agenda(line, replication)
        coming = np.bincount(self.agenda.stage, minlength=len(line.stages)).tolist()
        self.stations = [Station(stage, at, line, replication, coming[at]) for at, stage in enumerate(line.stages)]
        self._read(self.agenda)
        visits, items = len(self.agenda.stage), len(self.agenda.kind)
        self.enter, self.start, self.done, self.leave, self.job = ([NEVER] * visits for _ in range(5))
        self.entered, self.left = [NEVER] * items, [NEVER] * items
        self.limited = line.mode is LineCapacity.BLOCK and (line.capacity is not None or any(s.capacity is not None for s in line.stages))
        self.made = [NEVER] * visits if self.limited else self.done
        self.room = line.capacity if self.limited else None
        self.level = self._next = self._number = 0
        self.lost: list[int] = []
        self.now = 0
        self._jobs: list[int] = []
        self._release: list[int] = []
        self._over: list[Machine] = []
        self._delivered: list[int] = []
        self._work: deque[Station] = deque()
        self._freed = False

    def _read(self, due: Agenda) -> None:
        """Take the columns as lists: one number is read faster from these."""
        self.work: list[int]
        self.size: list[int]
        self.arrive, self.first, self.kind = due.arrive.tolist(), due.first.tolist(), due.kind.tolist()
        self.item, self.work, self.transport = due.item.tolist(), due.work.tolist(), due.transport.tolist()
        self.size, self.output = due.size.tolist(), due.output.tolist()
        self.station = [self.stations[number] for number in due.stage.tolist()]
        last = np.zeros(len(due.stage), bool)
        last[due.first[1:] - 1] = True
        self.is_last = last.tolist()
        self._may_be_lost = [kind.when_full is WhenFull.LOST for kind in self.line.kinds]

    def play(self) -> LineRun:
        """Run until nothing happens any more."""
        step, peek, never = self.clock.step, self.clock.peek, float("inf")
        arrive, items, round_ = self.arrive, len(self.arrive), self._round
        while True:
            while True:
                at = peek()
                if self._next < items and arrive[self._next] <= at:
                    at = arrive[self._next]
                elif at == never:
                    break
                self.now = int(at)
                while peek() == at:
                    step()
                round_()
            if not self._start_incomplete():
                break
        stuck = len(self.left) - len(self.lost) - sum(time != NEVER for time in self.left)
        return self._result(deadlock(self) if stuck else None)

    def _after(self, delay: int, value: Any, then: Callable[[Any], None]) -> None:
        """Let *then* happen in *delay* from now. The clock stands still while items only come, so it may be behind."""
        self._timeout(self.clock, self.now - self.clock._now + delay, value).callbacks.append(then)

    def _ended(self, event: Any) -> None:
        self._over.append(event._value)

    def _was_delivered(self, event: Any) -> None:
        self._delivered.append(event._value)

    def _round(self) -> None:
        """Apply all that is over at this instant."""
        if self._over:
            over, self._over = self._over, []
            if len(over) > 1:
                over.sort(key=lambda machine: (machine.station.index, machine.number))
            for machine in over:
                self._finish(machine)
            self._settle()
        if self._delivered:
            delivered, self._delivered = self._delivered, []
            for visit in sorted(delivered):
                self._enqueue(self.station[visit], visit)
            self._settle()
        while self._next < len(self.arrive) and self.arrive[self._next] == self.now:
            item = self._next
            self._next += 1
            station = self.station[self.first[item]]
            station.outside.append(item)
            self._list(station)
            self._settle()
            if self._may_be_lost[self.kind[item]] and self.entered[item] == NEVER:
                self._lose(station, item)
                self._settle()

    def _list(self, station: Station) -> None:
        """Look at *station* again in this round."""
        if not station.listed:
            station.listed = True
            self._work.append(station)

    def _settle(self) -> None:
        """Let everything begin and move that can."""
        work = self._work
        while work or self._freed:
            if not work:
                self._freed = False
                for station in reversed(self.stations):
                    self._list(station)
            station = work.popleft()
            station.listed = False
            self._advance(station)

    def _advance(self, station: Station) -> None:
        """Begin and accept at *station* what can: who begins makes a place free, and who is accepted may begin."""
        while True:
            if station.growing:
                self._try_to_make(station)
            while station.idle and station.queue and self._begin(station):
                pass
            accepted = bool(station.blocked) and self._accept_blocked(station)
            while station.outside and self._admit(station):
                accepted = True
            if not accepted:
                return

    def _begin(self, station: Station, incomplete: bool = False) -> bool:
        """Let an idle machine of *station* take the next batch, if it is complete and has room."""
        queue, wanted = station.queue, station.batch
        if station.simple:
            visit = queue.popleft()
            station.inside -= 1
            self._take(station, station.machines[station.idle.pop(0)], [visit], 0, 0, self.work[visit])
            return True
        if len(queue) < wanted:
            if station.coming and not incomplete:
                return False
            wanted = len(queue)
        batch = self._first(station, wanted)
        stage = station.stage
        if self.limited and stage.output_from is OutputFrom.START:
            needed = sum(self.output[visit] for visit in batch)
            if not self._fits(station, needed):
                return False
            self._occupy(station, needed)
        self._drop(station, wanted)
        station.inside -= wanted
        machine = station.machines[self._choose(station, batch[0])]
        setup = 0
        kind = self.kind[self.item[batch[0]]]
        if stage.setup_when is SetUp.BATCH or machine.kind != kind or any(self.kind[self.item[visit]] != kind for visit in batch):
            setup = next(station.setups)
        machine.kind = self.kind[self.item[batch[-1]]]
        if wanted == 1:
            work = self.work[batch[0]]
        else:
            works = [self.work[visit] for visit in batch]
            work = sum(works) if stage.per is Per.ITEM else max(works)
        repair = machine.repair_within(work) if stage.breakdown is not None else 0
        self._take(station, machine, batch, setup, repair, work)
        return True

    def _take(self, station: Station, machine: Machine, batch: list[int], setup: int, repair: int, work: int) -> None:
        """*machine* takes *batch* now, and will be done with it in its time."""
        now, number, count = self.now, len(self._release), len(batch)
        machine.batch, machine.left, machine.job = batch, count, number
        for visit in batch:
            self.start[visit] = now
            self.job[visit] = number
        self._jobs += (station.index, machine.number, now, setup, repair, work, count)
        self._release.append(NEVER)
        self._after(setup + repair + work, machine, self._ended)

    def _first(self, station: Station, count: int) -> list[int]:
        """The next *count* visits in the stage's order."""
        queue = station.queue
        if not station.fifo:
            return [visit for _, _, visit in (nsmallest(count, queue) if count > 1 else queue[:1])]
        if station.order is Order.LIFO:
            return [queue[-1 - place] for place in range(count)]
        return [queue[0]] if count == 1 else list(islice(queue, count))

    def _drop(self, station: Station, count: int) -> None:
        queue = station.queue
        for _ in range(count):
            if not station.fifo:
                heappop(queue)
            elif station.order is Order.LIFO:
                queue.pop()
            else:
                queue.popleft()

    def _choose(self, station: Station, visit: int) -> int:
        """Take an idle machine: where set-ups can be saved one that is set up for *visit*, else that with the lowest number."""
        idle = station.idle
        if station.stage.setup_when is SetUp.CHANGE and len(idle) > 1:
            kind = self.kind[self.item[visit]]
            for place, number in enumerate(idle):
                if station.machines[number].kind == kind:
                    return idle.pop(place)
        return idle.pop(0)

    def _finish(self, machine: Machine) -> None:
        """The work of *machine* is done: its items have their outputs, if there is room, and move on, if they can."""
        for visit in machine.batch:
            self.done[visit] = self.now
            if self.limited and not self._make(machine, visit):
                machine.station.growing.append((machine, visit))
                self._list(machine.station)
            else:
                self._pass_on(machine, visit)

    def _make(self, machine: Machine, visit: int) -> bool:
        """Make the output of *visit* if there is room for it."""
        station = machine.station
        stage = station.stage
        growth = -self.size[visit] if stage.input_until is InputUntil.DONE else 0
        growth += self.output[visit] if stage.output_from is OutputFrom.DONE else 0
        if growth > 0 and not self._fits(station, growth):
            return False
        self._occupy(station, growth)
        self.made[visit] = self.now
        return True

    def _try_to_make(self, station: Station) -> bool:
        waiting, station.growing = station.growing, deque()
        for machine, visit in waiting:
            if self._make(machine, visit):
                self._pass_on(machine, visit)
            else:
                station.growing.append((machine, visit))
        return len(station.growing) < len(waiting)

    def _pass_on(self, machine: Machine, visit: int) -> None:
        """Let *visit* end if it is the item's last or the next stage has room, else wait for that."""
        if self.is_last[visit]:
            self.leave[visit] = self.left[self.item[visit]] = self.now
            self._let_go(machine, visit)
            return
        target = self.station[visit + 1]
        if not target.blocked and self._has_place(target, self.output[visit]):
            self._move(machine, visit, target)
        else:
            target.blocked.append((machine, visit))
            self._list(target)

    def _accept_blocked(self, station: Station) -> bool:
        waiting, station.blocked = station.blocked, deque()
        for machine, visit in waiting:
            if self._has_place(station, self.output[visit]):
                self._move(machine, visit, station)
            else:
                station.blocked.append((machine, visit))
        return len(station.blocked) < len(waiting)

    def _has_place(self, station: Station, size: int) -> bool:
        """Whether *station* can accept one more: a place to wait in, or a machine that is idle and takes it at once."""
        places = station.places
        if places is not None and station.inside >= places + (len(station.idle) if station.batch == 1 else 0):
            return False
        return station.room is None or station.level + size <= station.room

    def _move(self, machine: Machine, visit: int, target: Station) -> None:
        self.leave[visit] = self.now
        target.inside += 1
        if self.limited:
            target.level += self.output[visit]
        self._let_go(machine, visit)
        if transport := self.transport[visit]:
            self._after(transport, visit + 1, self._was_delivered)
        else:
            self._enqueue(target, visit + 1)

    def _let_go(self, machine: Machine, visit: int) -> None:
        """*visit* has left *machine*; the last one of the batch leaves it idle."""
        station = machine.station
        if self.limited:
            gone = self.output[visit]
            input_too = self.size[visit] if station.stage.input_until is InputUntil.ACCEPTED else 0
            station.level -= gone + input_too
            self.level -= input_too + (gone if self.is_last[visit] else 0)
            self._freed = True
        machine.left -= 1
        if not machine.left:
            self._release[machine.job] = self.now
            insort(station.idle, machine.number)
            self._list(station)

    def _enqueue(self, station: Station, visit: int) -> None:
        """*visit* is at its stage."""
        self.enter[visit] = self.now
        station.coming -= 1
        if station.fifo:
            station.queue.append(visit)
        else:
            self._number += 1
            heappush(station.queue, (self._key(station.order, visit), self._number, visit))
        self._list(station)

    def _key(self, order: Order, visit: int) -> int:
        match order:
            case Order.SHORTEST:
                return self.work[visit]
            case Order.LONGEST:
                return -self.work[visit]
            case Order.SMALLEST:
                return self.size[visit]
            case Order.LARGEST:
                return -self.size[visit]
            case _:
                return int(self.line.kinds[self.kind[self.item[visit]]].priority)

    def _admit(self, station: Station) -> bool:
        """Let the first item that waits outside *station* enter, if there is room."""
        item = station.outside[0]
        visit = self.first[item]
        size = self.size[visit]
        if station.blocked or not self._has_place(station, size) or (self.room is not None and self.level + size > self.room):
            return False
        station.outside.popleft()
        self.entered[item] = self.now
        station.inside += 1
        if self.limited:
            self._occupy(station, size)
        self._enqueue(station, visit)
        return True

    def _lose(self, station: Station, item: int) -> None:
        """Turn *item* away: none of its visits will come."""
        station.outside.remove(item)
        self.lost.append(item)
        for visit in range(self.first[item], self.first[item + 1]):
            self.station[visit].coming -= 1
            self._list(self.station[visit])

    def _fits(self, station: Station, growth: int) -> bool:
        return (self.room is None or self.level + growth <= self.room) and (station.room is None or station.level + growth <= station.room)

    def _occupy(self, station: Station, growth: int) -> None:
        self.level += growth
        station.level += growth
        self._freed |= growth < 0

    def _start_incomplete(self) -> bool:
        """Nothing moves: start the first batch that only waits to be complete, which it never will be; return whether there was one."""
        for station in self.stations:
            if station.idle and station.queue and len(station.queue) < station.batch and self._begin(station, incomplete=True):
                self._list(station)
                self._settle()
                return True
        return False

    def _result(self, found: Any) -> LineRun:
        columns = np.array(self._jobs, np.int64).reshape(-1, 7).T
        stage, machine, begin, setup, repair, work, items = columns
        jobs = Jobs(stage, machine, begin, setup, repair, work, begin + setup + repair + work, _times(self._release), items)
        lost = np.zeros(len(self.entered), bool)
        lost[self.lost] = True
        return LineRun(
            line=self.line,
            replication=self.replication,
            agenda=self.agenda,
            entered=_times(self.entered),
            left=_times(self.left),
            lost=lost,
            enter=_times(self.enter),
            start=_times(self.start),
            done=_times(self.done),
            made=_times(self.made),
            leave=_times(self.leave),
            job=_times(self.job),
            jobs=jobs,
            end=self.now,
            deadlock=found,
        )


def _times(values: list[int]) -> Any:
    return np.array(values, np.int64)
