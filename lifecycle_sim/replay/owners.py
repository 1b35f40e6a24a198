"""Which frame of a stack owns a storage: the user's own line, with everything between it and the allocator folded away.

A stack runs from the allocator (innermost) out to the program's entry. The owner is its innermost frame that no fold rule matches::

    CUDACachingAllocator.cpp   c10::cuda::…::malloc         folded: not Python
    ??                         at::_ops::empty::call        folded: not Python
    …/torch/nn/modules/linear.py:117 forward                folded: torch itself
    /project/model.py:58 forward                            the owner
    …/lib/python3.12/runpy.py:88 _run_code                  (further out: not looked at)

Packages that are built on torch are not folded: a line of ``transformers`` is an owner like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lifecycle_sim.events import Frame, StackTable

NO_OWNER = -1


@dataclass(frozen=True)
class FoldRule:
    """A kind of frame that never is the user's own line.

    Attributes:
        what: what its frames are, for people.
        pattern: found in the frame's file name, in which backslashes were made slashes.
    """

    what: str
    pattern: re.Pattern[str]


PYTHON_FILE = re.compile(r"\.pyw?$|^<")
"""Files of Python frames. All others (``??``, an empty name, ``CUDACachingAllocator.cpp``, ``ceval.c``) are frames of C or C++."""

FOLD_RULES: tuple[FoldRule, ...] = (
    FoldRule("torch, installed", re.compile(r"(^|/)(site|dist)-packages/(torch|functorch|torchgen)/")),
    FoldRule(
        "torch, from a source tree or with its path cut to the package",
        re.compile(
            r"(^|/)torch/(_\w+|accelerator|amp|ao|autograd|backends|cuda|distributed|distributions|export|fft|func|futures|fx|jit|library"
            r"|linalg|masked|multiprocessing|nested|nn|optim|package|profiler|serialization|sparse|special|testing|utils|xpu)(/|\.py$)"
            r"|(^|/)torch/(__init__|functional|hub|overrides|random|storage)\.py$"
        ),
    ),
    FoldRule("code that torch.compile or torch.fx wrote", re.compile(r"(^|/)torchinductor_[^/]*/|^<eval_with_key>")),
    FoldRule("Python's own library", re.compile(r"(^|/)(lib|lib64)/python[\d.]+t?/(?!(site|dist)-packages/)", re.IGNORECASE)),
    FoldRule("Python's own library on Windows", re.compile(r"/python[\d.]*/lib/(?!(site|dist)-packages/)", re.IGNORECASE)),
    FoldRule("code without a file", re.compile(r"^<(frozen |string>|unknown>|attrs |__array_function__)|^<>$")),
)

AUTOGRAD_NODE = re.compile(r"\btorch::autograd::(\w+::)*\w+::apply\(")
"""Frames of C++ that name a backward operator: the autograd engine's threads have no Python frame, so this tells most about a gradient."""

ALLOCATION_PLUMBING = re.compile(r"\btorch::(unwind|CapturedTraceback)\b|\bgather_with_cpp\b|^c10::|\bat::(\w+::)*_?empty_?\w*[<(]")
"""Frames of C++ that every allocation has: taking the stack, the allocator, and the making of an empty tensor."""


def is_python(frame: Frame) -> bool:
    """Whether *frame* is one of Python rather than of C or C++."""
    return PYTHON_FILE.search(frame.filename) is not None


def is_folded(frame: Frame) -> bool:
    """Whether *frame* never is the user's own line: it is not Python, or a rule of ``FOLD_RULES`` matches it."""
    filename = frame.filename.replace("\\", "/")
    return not is_python(frame) or any(rule.pattern.search(filename) for rule in FOLD_RULES)


def owner_frames(table: StackTable) -> list[int]:
    """Return for each stack of *table* the number of the frame that owns what it allocated.

    That is the innermost frame that is not folded. Where all are, it is the outermost Python frame. A stack with no Python frame,
    such as one of a backward thread, is owned by its innermost autograd node, else by its innermost frame that is not
    allocation plumbing, else by its innermost frame. ``NO_OWNER`` for a stack without frames.
    """
    folded = [is_folded(frame) for frame in table.frames]
    python = [is_python(frame) for frame in table.frames]
    native = _native_ranks(table)
    owners = []
    for stack in table.stacks:
        own = next((frame for frame in stack if not folded[frame]), None)
        if own is None:
            own = next((frame for frame in reversed(stack) if python[frame]), None)
        if own is None:
            own = min(stack, key=native.__getitem__, default=NO_OWNER)
        owners.append(own)
    return owners


def innermost_python_frames(table: StackTable) -> list[int]:
    """Return for each stack of *table* the number of its innermost Python frame; where it has none, of the frame that owns it."""
    python, native = [is_python(frame) for frame in table.frames], _native_ranks(table)
    shown = []
    for stack in table.stacks:
        innermost = next((frame for frame in stack if python[frame]), None)
        shown.append(min(stack, key=native.__getitem__, default=NO_OWNER) if innermost is None else innermost)
    return shown


def _native_ranks(table: StackTable) -> list[int]:
    """How much each frame of C or C++ tells, least first: 0 for an autograd node, 2 for what every allocation has, else 1."""
    return [0 if AUTOGRAD_NODE.search(frame.name) else 2 if ALLOCATION_PLUMBING.search(frame.name) else 1 for frame in table.frames]
