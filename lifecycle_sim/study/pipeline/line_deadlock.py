"""Explains a deadlock: who waits for what, who holds it, and the shortest way from one of them back to itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lifecycle_sim.study.pipeline.line_run import NEVER, Deadlock, Wait

if TYPE_CHECKING:
    from lifecycle_sim.study.pipeline.line_engine import Course
    from lifecycle_sim.study.pipeline.line_station import Machine, Station

MOST_HOLDERS = 8


@dataclass(frozen=True)
class _Waiter:
    """Who waits: a machine with a visit in hand, or the items in a stage's buffer (machine None)."""

    station: int
    machine: int | None


def deadlock(course: Course) -> Deadlock:
    """Return what keeps the items of *course* from going on; nothing is left on its clock."""
    waits = dict(_waits(course))
    cycle = _shortest_cycle({who: holders for who, (_, _, holders) in waits.items()})
    told = []
    for who in cycle:
        visit, what, holders = waits[who]
        held_by = tuple(_called(course, holder) for holder in holders[:MOST_HOLDERS])
        told.append(Wait(_called(course, who), _item(course, visit), what, held_by))
    entered = [time != NEVER for time in course.entered]
    inside = sum(entered) - sum(time != NEVER for time in course.left)
    return Deadlock(course.now, tuple(told), inside, len(entered) - sum(entered) - len(course.lost))


def _called(course: Course, who: _Waiter) -> str:
    name = course.line.stages[who.station].name
    return f"{name}, buffer" if who.machine is None else f"{name}, machine {who.machine + 1}"


def _item(course: Course, visit: int) -> str:
    item = course.item[visit]
    return f"{course.line.kinds[course.kind[item]].name} {course.agenda.number[item]}"


def _waits(course: Course) -> Iterator[tuple[_Waiter, tuple[int, str, list[_Waiter]]]]:
    """Yield each waiter with its visit, what it waits for, and who holds that."""
    unit = course.line.unit
    stuck = [_Waiter(station.index, number) for station in course.stations for number in _busy(station)]
    stuck += [_Waiter(station.index, None) for station in course.stations if station.queue and station.idle]
    behind = [_Waiter(station.index, None) for station in course.stations if station.queue and not station.idle]
    holding = stuck + behind
    for target in course.stations:
        for machine, visit in target.blocked:
            who = _of(machine)
            if target.room is not None and target.level + course.output[visit] > target.room:
                size = course.output[visit]
                what = f"room in {target.stage.name} for {size:,} {unit}, and {target.level:,} of {target.room:,} are taken"
                yield who, (visit, what, [each for each in holding if each.station == target.index and each != who])
            else:
                yield who, (visit, f"a place at {target.stage.name}", _of_places(target, stuck))
        for machine, visit in target.growing:
            yield _of(machine), (visit, *_room(course, target, course.output[visit], holding, _of(machine)))
        if target.queue and target.idle:
            batch = course._first(target, min(target.batch, len(target.queue)))
            who = _Waiter(target.index, None)
            yield who, (batch[0], *_room(course, target, sum(course.output[visit] for visit in batch), holding, who))
        elif target.queue:
            first = course._first(target, 1)[0]
            yield (
                _Waiter(target.index, None),
                (first, f"a machine at {target.stage.name}", [_Waiter(target.index, n) for n in _busy(target)]),
            )


def _of(machine: Machine) -> _Waiter:
    return _Waiter(machine.station.index, machine.number)


def _busy(station: Station) -> list[int]:
    return [machine.number for machine in station.machines if machine.number not in station.idle]


def _of_places(target: Station, stuck: list[_Waiter]) -> list[_Waiter]:
    """Who holds the places of *target*: its machines, which take nobody from the buffer, or those in the buffer themselves."""
    return [each for each in stuck if each.station == target.index]


def _room(course: Course, at: Station, size: int, holding: list[_Waiter], who: _Waiter) -> tuple[str, list[_Waiter]]:
    """What is said of a lack of room, and who holds it: all others that are there, or the waiter itself if there are none."""
    unit = course.line.unit
    if at.room is not None and at.level + size > at.room:
        what = f"room in {at.stage.name} for an output of {size:,} {unit}, and {at.level:,} of {at.room:,} are taken"
        return what, [each for each in holding if each.station == at.index and each != who] or [who]
    what = f"room in the line for an output of {size:,} {unit}, and {course.level:,} of {course.room or 0:,} are taken"
    return what, [each for each in holding if each != who] or [who]


def _shortest_cycle(holders: dict[_Waiter, list[_Waiter]]) -> list[_Waiter]:
    """Return a shortest cycle in the graph of who waits for whom; the first found among equals, none if there is none."""
    best: list[_Waiter] = []
    for begin in holders:
        came: dict[_Waiter, _Waiter] = {}
        ahead = deque([begin])
        while ahead:
            who = ahead.popleft()
            for holder in holders.get(who, ()):
                if holder == begin:
                    path = [who]
                    while path[-1] != begin:
                        path.append(came[path[-1]])
                    if not best or len(path) < len(best):
                        best = path[::-1]
                    ahead.clear()
                    break
                if holder not in came:
                    came[holder] = who
                    ahead.append(holder)
    return best
