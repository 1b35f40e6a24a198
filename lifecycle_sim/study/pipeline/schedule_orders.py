"""The schedules that are known by name, each as the lists of its ranks.

=========================  ===========================================================================================
``gpipe``                  all forwards, then all backwards (Huang et al. 2018)
``1f1b``                   one forward, one backward, after a warm-up of p − 1 − r forwards (PipeDream-Flush, Megatron)
``looped-bfs``             ``gpipe`` with v chunks a rank, chunk after chunk (Lamy-Poirier 2022)
``interleaved-1f1b``       ``1f1b`` with v chunks a rank (Narayanan et al. 2021, arXiv:2104.04473)
``zb-h1``, ``zb-h2``       ``1f1b`` whose weight gradients fill the gaps; h2 with a longer warm-up (arXiv:2401.10241)
``interleaved-zb``         ``zb-h1`` with v chunks a rank
``zbv``                    two chunks a rank in a V: rank r holds stages r and 2p − 1 − r (arXiv:2401.10241, section 6)
``dualpipev``              a V too; forwards and backwards of the two chunks in pairs (DeepSeek's DualPipe, cut in half)
=========================  ===========================================================================================

All but ``zb-h2`` run the actions of ``torch.distributed.pipelining`` 2.13 in the same order (``gpipe`` and ``1f1b`` with their
micro-batches numbered from 0). A pair of DualPipeV begins when both its parts can; its forward runs and then its backward, so what a device
would gain by running them at once is not there.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from lifecycle_sim.errors import InputError
from lifecycle_sim.spelling import closest
from lifecycle_sim.study.pipeline.schedule import Action, Schedule, Work

F, B, I, W = Work.FORWARD, Work.BACKWARD, Work.INPUT_GRADIENT, Work.WEIGHT_GRADIENT  # noqa: E741
Turn = tuple[int, int]
"""A stage and a micro-batch."""
MOST_ACTIONS = 4_000_000


@dataclass(frozen=True)
class Shape:
    """How large a schedule is: p ranks, m micro-batches, v chunks a rank."""

    ranks: int
    microbatches: int
    chunks: int

    @property
    def rounds(self) -> int:
        """In how many rounds the micro-batches go through the chunks of a rank."""
        return max(1, self.microbatches // self.ranks)

    @property
    def in_round(self) -> int:
        """How many micro-batches go through a chunk before the next chunk has its turn."""
        return self.microbatches // self.rounds


def turns(shape: Shape, rank: int, backwards: bool = False) -> list[Turn]:
    """Return the stages and micro-batches of *rank* in the order of its forwards, or of its backwards.

    A round of micro-batches goes through one chunk after another: forward from the first to the last, backward from the last to the first.
    """
    chunks = range(shape.chunks)[:: -1 if backwards else 1]
    size = shape.in_round if shape.chunks > 1 else shape.microbatches
    return [
        (chunk * shape.ranks + rank, microbatch)
        for first in range(0, shape.microbatches, size)
        for chunk in chunks
        for microbatch in range(first, first + size)
    ]


def one_forward_one_backward(forwards: Sequence[Turn], backwards: Sequence[Turn], warmup: int, lag: int | None = None) -> Iterator[Action]:
    """Yield *warmup* forwards, then a forward and a backward in turn, then the backwards that are left.

    With a *lag*, a backward is the input's gradient alone, and the weights' follow *lag* of them behind; what lags at last comes last.
    """
    warmup = min(warmup, len(forwards))
    ahead = iter(forwards)
    for _ in range(warmup):
        yield Action(*_with(F, next(ahead)))
    for done, turn in enumerate(backwards):
        if (following := next(ahead, None)) is not None:
            yield Action(*_with(F, following))
        yield Action(*_with(B if lag is None else I, turn))
        if lag is not None and done >= lag:
            yield Action(*_with(W, backwards[done - lag]))
    if lag is not None:
        for turn in backwards[max(0, len(backwards) - lag) :]:
            yield Action(*_with(W, turn))


def _with(work: Work, turn: Turn) -> tuple[int, Work, int]:
    return turn[0], work, turn[1]


def gpipe(shape: Shape, rank: int) -> Iterator[Action]:
    """All forwards, then all backwards."""
    return one_forward_one_backward(turns(shape, rank), turns(shape, rank), shape.microbatches)


def one_f_one_b(shape: Shape, rank: int) -> Iterator[Action]:
    """As many forwards ahead as there are ranks behind this one."""
    return one_forward_one_backward(turns(shape, rank), turns(shape, rank), shape.ranks - 1 - rank)


def looped_bfs(shape: Shape, rank: int) -> Iterator[Action]:
    """All micro-batches through one chunk, then through the next; backward in the opposite order."""
    mine = range(rank, shape.ranks * shape.chunks, shape.ranks)
    forwards = [(stage, microbatch) for stage in mine for microbatch in range(shape.microbatches)]
    return one_forward_one_backward(forwards, forwards[::-1], len(forwards))


def interleaved_1f1b(shape: Shape, rank: int) -> Iterator[Action]:
    """All chunks but the last are warm-up, and two forwards more for each rank behind this one."""
    warmup = (shape.chunks - 1) * shape.in_round + 2 * (shape.ranks - 1 - rank)
    return one_forward_one_backward(turns(shape, rank), turns(shape, rank, backwards=True), warmup)


def interleaved_zb(shape: Shape, rank: int) -> Iterator[Action]:
    """One forward more for each rank behind this one; weights lag by one for each rank before it."""
    warmup = (shape.chunks - 1) * shape.in_round + (shape.ranks - 1 - rank)
    return one_forward_one_backward(turns(shape, rank), turns(shape, rank, backwards=True), warmup, lag=rank)


def zb_h2(shape: Shape, rank: int) -> Iterator[Action]:
    """Twice the warm-up and twice the lag of ``zb-h1``."""
    return one_forward_one_backward(turns(shape, rank), turns(shape, rank), 2 * (shape.ranks - 1 - rank), lag=2 * rank)


@dataclass
class _Vee:
    """The list of a rank that holds two stages in a V: work is said by chunk, and micro-batches are counted.

    Attributes:
        stages: the rank's two stages.
        done: how many micro-batches each kind of work has had in each chunk.
        waiting: input gradients whose weight gradients are still to do, first in, first out.
        actions: the list so far.
    """

    stages: Turn
    done: dict[tuple[Work, int], int] = field(default_factory=lambda: defaultdict(int))
    waiting: deque[Action] = field(default_factory=deque)
    actions: list[Action] = field(default_factory=list)

    def do(self, work: Work, chunk: int) -> None:
        """Do *work* on the next micro-batch of *chunk*; a whole backward counts with the input gradients."""
        counted = I if work is B else work
        action = Action(self.stages[chunk], work, self.done[counted, chunk])
        self.done[counted, chunk] += 1
        self.actions.append(action)
        if work is I:
            self.waiting.append(action)

    def weights(self) -> None:
        """Do the weight gradient that waits longest, if one does."""
        if self.waiting:
            first = self.waiting.popleft()
            self.actions.append(Action(first.stage, W, first.microbatch))


def zbv(shape: Shape, rank: int) -> Iterator[Action]:
    """The V with a zero bubble where the three kinds of work take equally long.

    It is laid out for 2p − 1 micro-batches at least; of fewer, those that are not there are left out.
    """
    ranks, count = shape.ranks, max(2 * shape.ranks - 1, shape.microbatches)
    vee = _Vee((rank, 2 * ranks - 1 - rank))

    def backward(chunk: int) -> None:
        vee.do(I, chunk)
        vee.weights()

    for _ in range(2 * (ranks - rank) - 1):
        vee.do(F, 0)
    for _ in range(rank):
        vee.do(F, 1)
        vee.do(F, 0)
    for _ in range(ranks - rank):
        vee.do(F, 1)
        backward(1)
    while vee.done[F, 1] < count:
        if vee.done[F, 0] < count:
            vee.do(F, 0)
        backward(0)
        vee.do(F, 1)
        backward(1)
    for _ in range(rank):
        vee.do(I, 0)
        vee.do(I, 1)
    late = [action for action in vee.waiting if action.stage == vee.stages[1]]
    vee.waiting = deque(action for action in vee.waiting if action.stage == vee.stages[0])
    for _ in range(ranks - rank):
        backward(0)
    vee.waiting.extendleft(reversed(late))
    while vee.waiting:
        vee.weights()
    return (action for action in vee.actions if action.microbatch < shape.microbatches)


def dualpipev(shape: Shape, rank: int) -> Iterator[Action]:
    """The V whose steady part pairs the forward of one chunk with the backward of the other.

    The parts are those of DeepSeek's DualPipe: forwards of the first chunk; of both in turn; zero-bubble backwards of the second; the
    pairs; pairs without the first chunk's forwards; then backwards, the later half of them with the weights put off.
    """
    ranks, behind = shape.ranks, shape.ranks - 1 - rank
    vee = _Vee((rank, 2 * ranks - 1 - rank))
    for _ in range(2 * behind):
        vee.do(F, 0)
    for _ in range(rank + 1):
        vee.do(F, 0)
        vee.do(F, 1)
    for _ in range(behind):
        vee.do(I, 1)
        vee.weights()
        vee.do(F, 1)
    for number in range(shape.microbatches - 2 * ranks + rank + 1 + behind):
        if number < shape.microbatches - 2 * ranks + rank + 1:
            vee.do(F, 0)
        vee.do(B, 1)
        vee.do(F, 1)
        vee.do(B, 0)
    for number in range(2 * (rank + 1)):
        vee.do(B if number <= rank else I, 1 - number % 2)
    for _ in range(behind):
        vee.weights()
        vee.do(I, 0)
    while vee.waiting:
        vee.weights()
    return iter(vee.actions)


def overlapped(shape: Shape, rank: int, actions: Sequence[Action]) -> frozenset[int]:
    """Return where a forward and the whole backward behind it are a pair in DualPipeV: everywhere, but for the last rank's first."""
    found = [place for place in range(len(actions) - 1) if actions[place].work is F and actions[place + 1].work is B]
    return frozenset(found[rank == shape.ranks - 1 :])


@dataclass(frozen=True)
class Known:
    """A schedule that is known by name.

    Attributes:
        name: its name.
        order: the list of one rank.
        chunks: how many chunks a rank has: 1, 2, or None for any number from 2 on.
        rounds: whether all rounds must have as many micro-batches.
        least: the least micro-batches for each rank.
        pairs: where in a rank's list there are pairs.
        says: one line for people.
    """

    name: str
    order: Callable[[Shape, int], Iterator[Action]]
    chunks: int | None
    says: str
    rounds: bool = False
    least: int = 0
    pairs: Callable[[Shape, int, Sequence[Action]], frozenset[int]] | None = None


SCHEDULES: dict[str, Known] = {
    known.name: known
    for known in (
        Known("gpipe", gpipe, 1, "all forwards, then all backwards"),
        Known("1f1b", one_f_one_b, 1, "one forward, one backward"),
        Known("looped-bfs", looped_bfs, None, "gpipe with several chunks a rank"),
        Known("interleaved-1f1b", interleaved_1f1b, None, "1f1b with several chunks a rank", rounds=True),
        Known("zb-h1", interleaved_zb, 1, "1f1b with weight gradients in the gaps"),
        Known("zb-h2", zb_h2, 1, "zb-h1 with a longer warm-up"),
        Known("interleaved-zb", interleaved_zb, None, "zb-h1 with several chunks a rank", rounds=True),
        Known("zbv", zbv, 2, "two chunks a rank in a V, zero bubble"),
        Known("dualpipev", dualpipev, 2, "two chunks a rank in a V, in pairs", least=2, pairs=overlapped),
    )
}
TORCH_NAMES = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "loopedbfs": "looped-bfs",
    "interleaved1f1b": "interleaved-1f1b",
    "interleavedzerobubble": "interleaved-zb",
    "zbvzerobubble": "zbv",
    "dualpipev": "dualpipev",
    "zbh1": "zb-h1",
    "zbh2": "zb-h2",
}
"""The names that torch gives them, in lower case and without hyphens."""


def schedule(name: str, ranks: int, microbatches: int, chunks: int | None = None) -> Schedule:
    """Return the schedule called *name*.

    Args:
        name: one of ``SCHEDULES``, or torch's name of it, such as ``"Interleaved1F1B"``.
        ranks: how many ranks there are, p.
        microbatches: how many micro-batches a step has, m.
        chunks: how many stages a rank holds, v; by default 2 where the schedule takes any number.

    Raises:
        InputError: there is no such schedule, or it cannot have these numbers.
    """
    known = find(name)
    problems = [
        f"{what} is {value}: give 1 or more"
        for what, value in (
            ("the number of stages", ranks),
            ("the number of micro-batches", microbatches),
            ("the number of chunks", chunks),
        )
        if value is not None and value < 1
    ]
    if problems:
        raise InputError([f"{known.name}: {problem}" for problem in problems])
    shape = Shape(ranks, microbatches, (known.chunks or 2) if chunks is None else chunks)
    if problem := why_not(known, shape):
        raise InputError(f"{known.name}: {problem}")
    lists = tuple(tuple(known.order(shape, rank)) for rank in range(ranks))
    pairs = known.pairs
    return Schedule(known.name, microbatches, lists, tuple(pairs(shape, *each) for each in enumerate(lists)) if pairs else ())


def find(name: str) -> Known:
    """Return the schedule called *name*.

    Raises:
        InputError: there is none.
    """
    plain = "".join(letter for letter in name.lower() if letter.isalnum()).removeprefix("schedule")
    found = SCHEDULES.get(name.lower()) or SCHEDULES.get(TORCH_NAMES.get(plain, ""))
    if found is None:
        meant = closest(name.lower(), SCHEDULES)
        hint = f"did you mean {meant!r}? " if meant else ""
        raise InputError(
            f"schedule {name!r} is not known: {hint}the names are {', '.join(SCHEDULES)}; or give a file of action lists (.csv)"
        )
    return found


def why_not(known: Known, shape: Shape) -> str | None:
    """Return why *known* cannot have *shape*, and what to change; None if it can."""
    if known.chunks is not None and shape.chunks != known.chunks:
        return f"it has {known.chunks} stage{'s' * (known.chunks > 1)} a rank, not {shape.chunks}: leave the number of chunks out"
    if known.chunks is None and shape.chunks < 2:
        plain = {"looped-bfs": "gpipe", "interleaved-1f1b": "1f1b", "interleaved-zb": "zb-h1"}[known.name]
        return f"it has 2 chunks a rank or more, not {shape.chunks}: with 1 it is {plain}"
    if known.rounds and shape.microbatches % shape.rounds:
        lower = shape.rounds * shape.in_round
        return (
            f"{shape.microbatches} micro-batches do not make {shape.rounds} equal rounds over {shape.ranks} ranks: "
            f"take {lower} or {lower + shape.ranks - lower % shape.ranks}"
        )
    if shape.microbatches < known.least * shape.ranks:
        least = known.least * shape.ranks
        return f"it needs {known.least} micro-batches for each of {shape.ranks} ranks, {least} in all, not {shape.microbatches}"
    count = 3 * shape.ranks * shape.microbatches * shape.chunks
    if count > MOST_ACTIONS:
        return f"up to {count:,} actions are more than {MOST_ACTIONS:,}: take fewer micro-batches, ranks or chunks"
    return None
