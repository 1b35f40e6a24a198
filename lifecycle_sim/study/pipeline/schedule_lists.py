"""Action lists written by hand or by torch: a line a rank, actions between commas, such as ``0F0,0F1,0B0``.

That is the form in which ``torch.distributed.pipelining`` writes and reads its schedules. Empty places are gaps, and are passed over. A
pair, ``(0F4;7B2)OVERLAP_F_B``, begins when both its parts can. Sends, receives, and what shards or reduces are passed over too: a rank
waits for what it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

from lifecycle_sim.errors import InputError
from lifecycle_sim.study.pipeline.schedule import Action, Schedule, Work, result
from lifecycle_sim.study.pipeline.schedule_orders import MOST_ACTIONS

LARGEST = 1 << 30
_ACTION = re.compile(r"([0-9]{1,9})(F|B|I|W)([0-9]{1,9})")
_PAIR = re.compile(r"\(([^()]*)\)\s*OVERLAP_F_B")
_PASSED_OVER = re.compile(r"[0-9]{1,9}(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)[0-9]{0,9}")
MOST_TOLD = 5
"""Actions that one line of an error names."""


def read_lists(path: str | PathLike[str]) -> Schedule:
    """Return the schedule that the file *path* holds.

    Raises:
        InputError: it cannot be read, or is no whole schedule; ``problems`` lists all that is wrong.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise InputError(f"{file}: is larger than {LARGEST >> 30} GiB, which no schedule is")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is not UTF-8 text, so it holds no action lists") from None
    return parse_lists(text, file.stem, str(file))


def parse_lists(text: str, name: str = "lists", source: str = "lists") -> Schedule:
    """Return the schedule that *text* holds, a line a rank.

    Args:
        text: the lists.
        name: what to call the schedule.
        source: what errors call the text.

    Raises:
        InputError: as :func:`read_lists`.
    """
    problems: list[str] = []
    lists, pairs = [], []
    for rank, line in enumerate(text.rstrip().splitlines()):
        actions: list[Action] = []
        paired: set[int] = set()
        for place in line.split(","):
            parts = _parts(place.strip().strip('"'))
            if len(parts) > 1:
                paired.add(len(actions))
                if ["".join(filter(str.isalpha, part)) for part in parts] != ["F", "B"]:
                    problems.append(
                        f"rank {rank}: {place.strip()[:40]!r} is no pair: write a forward and a backward, such as (0F4;7B2)OVERLAP_F_B"
                    )
            for part in parts:
                if (found := _ACTION.fullmatch(part)) is not None:
                    actions.append(Action(int(found[1]), Work(found[2]), int(found[3])))
                elif not _PASSED_OVER.fullmatch(part):
                    problems.append(f"rank {rank}: {part[:40]!r} is no action: write stage, F, B, I or W, and micro-batch, such as 0F3")
        lists.append(tuple(actions))
        pairs.append(frozenset(paired))
    if problems:
        raise InputError([f"{source}: {problem}" for problem in problems])
    return replace(checked(lists, name, source), pairs=tuple(pairs) if any(pairs) else ())


def _parts(place: str) -> list[str]:
    pair = _PAIR.fullmatch(place)
    return [part.strip() for part in (pair[1].split(";") if pair else [place]) if part.strip()]


def checked(lists: Iterable[Iterable[Action | tuple[int, str, int]]], name: str = "lists", source: str = "lists") -> Schedule:
    """Return the schedule of these *lists*, one a rank, if it is whole: each stage on one rank, all its work on each micro-batch, once.

    That the ranks do not wait for each other in a circle is found when it runs.

    Raises:
        InputError: it is not whole; ``problems`` lists all that is wrong.
    """
    made = tuple(tuple(Action(stage, Work(work), microbatch) for stage, work, microbatch in actions) for actions in lists)
    problems: list[str] = []
    if not any(made):
        raise InputError(f"{source}: holds no action: write a line for each rank, with actions such as 0F0,0B0")
    if sum(map(len, made)) > MOST_ACTIONS:
        raise InputError(f"{source}: holds more than {MOST_ACTIONS:,} actions")
    problems += [f"rank {rank} has nothing to do: leave its line out" for rank, actions in enumerate(made) if not actions]
    holders: dict[int, int] = {}
    count: dict[Action, int] = {}
    for rank, actions in enumerate(made):
        for action in actions:
            count[action] = count.get(action, 0) + 1
            if holders.setdefault(action.stage, rank) != rank:
                problems.append(
                    f"stage {action.stage} is on rank {holders[action.stage]} and on rank {rank}: {action} belongs to one of them"
                )
    stages, microbatches = max(holders) + 1, max(action.microbatch for action in count) + 1
    if stages > len(count) or microbatches > len(count):
        problems.append(
            f"stages go up to {stages - 1:,} and micro-batches to {microbatches - 1:,}, with {len(count):,} actions: count from 0"
        )
    else:
        problems += _several("is there twice", (action for action, times in count.items() if times > 1))
        problems += _several("is missing", _missing(count, stages, microbatches))
        problems += _several(
            "is there beside I or W of the same: a backward is whole, or in two parts",
            (
                action
                for action in count
                if action.work is Work.BACKWARD
                and any(action._replace(work=work) in count for work in (Work.INPUT_GRADIENT, Work.WEIGHT_GRADIENT))
            ),
        )
    if problems:
        raise InputError([f"{source}: {problem}" for problem in problems])
    return Schedule(name, microbatches, made)


def _missing(count: dict[Action, int], stages: int, microbatches: int) -> Iterator[Action]:
    for stage in range(stages):
        for microbatch in range(microbatches):
            here = {work for work in Work if Action(stage, work, microbatch) in count}
            if Work.FORWARD not in here:
                yield Action(stage, Work.FORWARD, microbatch)
            if Work.BACKWARD not in here:
                if not here & {Work.INPUT_GRADIENT, Work.WEIGHT_GRADIENT}:
                    yield Action(stage, Work.BACKWARD, microbatch)
                else:
                    for work in sorted({Work.INPUT_GRADIENT, Work.WEIGHT_GRADIENT} - here):
                        yield Action(stage, work, microbatch)


def _several(what: str, actions: Iterable[Action]) -> Iterator[str]:
    """Say *what* of up to a few actions by name, and of how many more."""
    found = list(actions)
    yield from (f"{action} {what}" for action in found[:MOST_TOLD])
    if len(found) > MOST_TOLD:
        yield f"and so for {len(found) - MOST_TOLD:,} more"


def write_lists(schedule: Schedule) -> str:
    """Return the lists of *schedule* as text that :func:`parse_lists` reads, a line a rank."""
    return "".join(",".join(_written(schedule, rank)) + "\n" for rank in range(schedule.ranks))


def _written(schedule: Schedule, rank: int) -> Iterator[str]:
    pairs = schedule.pairs[rank] if schedule.pairs else frozenset()
    actions = schedule.lists[rank]
    for place, action in enumerate(actions):
        if place in pairs:
            yield f"({action};{actions[place + 1]})OVERLAP_F_B"
        elif place - 1 not in pairs:
            yield str(action)


def deadlock(schedule: Schedule, places: list[int]) -> str:
    """Return in words how the ranks of *schedule* wait for each other in a circle.

    Args:
        schedule: the schedule.
        places: for each rank how many actions it has done; a rank that has not done all is stuck at the next one.
    """
    where = {result(action): (rank, place) for rank, actions in enumerate(schedule.lists) for place, action in enumerate(actions)}

    def waits_for(rank: int) -> tuple[int, str]:
        """The rank that *rank* waits for, and why."""
        stuck = schedule.lists[rank][places[rank]]
        missing = (where[need] for need in schedule.needs(rank, places[rank]))
        holder, place = next((holder, place) for holder, place in missing if place >= places[holder])
        wanted, first = schedule.lists[holder][place], schedule.lists[holder][places[holder]]
        if holder == rank:
            return holder, f"rank {rank} waits at {stuck} for {wanted}, which its own list has later"
        return holder, f"rank {rank} waits at {stuck} for {wanted} of rank {holder}" + (f", behind {first}" if wanted != first else "")

    rank = next(rank for rank, place in enumerate(places) if place < len(schedule.lists[rank]))
    reasons: dict[int, str] = {}
    while rank not in reasons:
        following, reasons[rank] = waits_for(rank)
        rank = following
    circle = list(reasons)
    return "; ".join(reasons[each] for each in circle[circle.index(rank) :])
