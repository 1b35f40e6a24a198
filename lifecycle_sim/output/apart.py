"""Rows of a table named so that each is short and no two look alike.

Of a stack people are shown the lines of their own code and the innermost one of Python; what lies between is left out::

    torch::unwind::unwind()                      taking the stack: left out where there are frames of Python
    c10::cuda::CUDACachingAllocator::…::malloc   the allocator: likewise
    at::_ops::mul_Tensor::call                   C++: shown only where two stacks differ in nothing else
    /project/optimizer.py:80 step                shown
    …/torch/optim/optimizer.py:533 wrapper       left out, unless two stacks differ in nothing else
    /project/train.py:145 train                  shown

A stack without frames of Python, such as one of a backward thread, begins at its innermost autograd node. Rows that would look alike
show a frame, the folders or the arguments in which they differ; if that is not enough, how many frames they have, and last a number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

from lifecycle_sim.events import Frame
from lifecycle_sim.output.printable import one_line, shown
from lifecycle_sim.replay.owners import ALLOCATION_PLUMBING, AUTOGRAD_NODE, is_folded, is_python

BETWEEN = " ← "
MOST_FRAMES = 6
"""Frames of a stack that are shown, if fewer tell it apart."""

MOST_ADDED = 3
"""Frames of one kind that are added to tell stacks apart."""

_FRAME = re.compile(r"(?P<filename><[^>]*>|.*?\.pyw?)(?::(?P<line>[0-9]+))?(?: (?P<name>.*))?", re.DOTALL)

Chosen = tuple[bool, ...]
"""Which frames of a stack are shown."""


def tell_apart(keys: Sequence[str], width: int | None = 160) -> list[str]:
    """Return a short text for each of *keys*, names of groups or stacks whose frames are joined by ``" ← "``.

    Args:
        keys: distinct names. Texts of distinct names are distinct.
        width: names that are no stacks are cut in the middle to this many characters, unless they would then look alike.
    """
    stacks = [key.split(BETWEEN) for key in keys]
    chosen = _choose(stacks)
    ways: tuple[Callable[[int], str], ...] = (
        lambda row: shown(keys[row], width) if len(stacks[row]) == 1 else _joined(stacks[row], chosen[row], shown),
        lambda row: _joined(stacks[row], chosen[row], one_line),
        lambda row: f"{texts[row]} ({len(stacks[row])} frames)" if len(stacks[row]) > 1 else texts[row],
        lambda row: f"{texts[row]} [{row + 1}]",
    )
    texts = [ways[0](row) for row in range(len(keys))]
    for way in ways[1:]:
        for rows in _alike(texts):
            for row in rows:
                texts[row] = way(row)
    return texts


def _alike(texts: Sequence[object]) -> list[list[int]]:
    """The rows that hold the same, group by group."""
    rows = defaultdict(list)
    for row, text in enumerate(texts):
        rows[text].append(row)
    return [group for group in rows.values() if len(group) > 1]


def _joined(frames: Sequence[str], chosen: Chosen, spell: Callable[[str], str]) -> str:
    """The chosen frames, with one "…" for each run of frames left out that has a line of the user's own."""
    parts: list[str] = []
    cut = False
    for frame, wanted in zip(frames, chosen, strict=True):
        if wanted:
            parts += ["…"] if cut and parts else []
            parts.append(spell(frame))
            cut = False
        else:
            cut = cut or not is_folded(frame_of(frame))
    return BETWEEN.join(parts)


def _choose(stacks: Sequence[Sequence[str]]) -> list[Chosen]:
    """Of each stack the user's own lines, and of the other frames so few as set it apart from stacks with the same lines."""
    tiers = [_tiers(stack) for stack in stacks]
    texts = [[shown(frame) for frame in stack] for stack in stacks]
    chosen = [_shortened(own[0]) for own in tiers]
    for level in range(4):
        for _ in range(MOST_ADDED):
            for rows in _alike([_picked(text, own) for text, own in zip(texts, chosen, strict=True)]):
                wider = [tiers[row][level] for row in rows]
                common = set.intersection(*(set(_picked(texts[row], more)) for row, more in zip(rows, wider, strict=True)))
                for row, more in zip(rows, wider, strict=True):
                    chosen[row] = _with_one_more(texts[row], chosen[row], more, common)
    return chosen


def _with_one_more(texts: Sequence[str], chosen: Chosen, wider: Chosen, common: set[str]) -> Chosen:
    """Add the outermost frame of *wider* that is not in *common*: the one nearest to the user's line."""
    differing = [place for place, text in enumerate(texts) if wider[place] and not chosen[place] and text not in common]
    return tuple(wanted or place == differing[-1] for place, wanted in enumerate(chosen)) if differing else chosen


def _picked(stack: Sequence[str], chosen: Chosen) -> tuple[str, ...]:
    return tuple(frame for frame, wanted in zip(stack, chosen, strict=True) if wanted)


def _shortened(chosen: Chosen) -> Chosen:
    """The innermost frames and the outermost one, where many are chosen."""
    places = [place for place, wanted in enumerate(chosen) if wanted]
    kept = {*places[: MOST_FRAMES - 1], *places[-1:]}
    return tuple(place in kept for place in range(len(chosen)))


def _tiers(stack: Sequence[str]) -> tuple[Chosen, ...]:
    """Which frames of *stack* to show, from few to all; each tier holds the one before it.

    The user's own lines and the innermost one of Python; all of Python; all but what every allocation has; all.
    """
    frames = [frame_of(text) for text in stack]
    python = tuple(is_python(frame) for frame in frames)
    telling = tuple(ALLOCATION_PLUMBING.search(frame.name) is None for frame in frames)
    whole = (True,) * len(stack)
    if any(python):
        innermost = python.index(True)
        own = tuple(place == innermost or not is_folded(frame) for place, frame in enumerate(frames))
        return own, python, tuple(one or other for one, other in zip(python, telling, strict=True)), whole
    node = next((place for place, frame in enumerate(frames) if AUTOGRAD_NODE.search(frame.name)), None)
    if node is not None:
        only = tuple(place == node for place in range(len(stack)))
        return only, only, tuple(one or other for one, other in zip(only, telling, strict=True)), whole
    few = telling if any(telling) else whole
    return few, few, few, whole


def frame_of(text: str) -> Frame:
    """Return the frame that *text*, made by ``str(frame)``, stands for; the files of C and C++ have no spaces in their names."""
    match = _FRAME.fullmatch(text)
    if match is None:
        filename, _, name = text.partition(" ")
        return Frame(name, filename, 0)
    return Frame(match["name"] or "", match["filename"], int(match["line"] or 0))
