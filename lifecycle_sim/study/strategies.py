"""Strategies to make a step smaller, joined: what is changed in its program, and what is edited in its capture.

What is changed in the program (optimizer, updates in backward, accumulation, frozen parts, types) needs the program, which is captured
again; that is exact because it is no edit. The rest is edited: recomputation, sharding, offload. Of a capture alone, plain SGD can be
edited too, and what else would change the program is refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from lifecycle_sim.errors import InputError, UnitError
from lifecycle_sim.events import Trace
from lifecycle_sim.program.edits.offload import LEAST, Offload, parse_rate
from lifecycle_sim.program.edits.sharding import Sharding
from lifecycle_sim.program.engine_copies import Link
from lifecycle_sim.sources.capture.variant import Variant
from lifecycle_sim.spelling import closest
from lifecycle_sim.study.recompute import Recompute, what_if
from lifecycle_sim.units import parse_bytes

Recapture = Callable[["Strategies"], Trace]
"""Captures the program again, with the variant and the types of the strategies."""
LISTS = ("checkpoint", "save", "freeze", "offload")
PROGRAM = {
    "in_backward": "when each gradient is whole, and in which order the updates would run",
    "accumulate": "a pass over a smaller batch",
    "freeze": "which tensors autograd would not save, and which gradients it would not make",
    "dtype": "which kernels run in another type, and what they take",
    "autocast": "which casts are made and kept",
}
"""What is changed in the program, and what a capture does not tell of it."""


@dataclass(frozen=True)
class Strategies:
    """What is to be done to a step.

    Attributes:
        checkpoint: modules to recompute.
        save: operators whose outputs are saved all the same.
        early_stop, preserve_rng: as for :func:`~lifecycle_sim.study.recompute.what_if`.
        optimizer, in_backward, accumulate, freeze: as for :class:`~lifecycle_sim.sources.capture.Variant`.
        dtype: type to convert the model to.
        autocast: type of autocast.
        shard: what is divided among ranks, such as ``"zero3:8"``.
        offload: what lies on the host for a while: ``"saved"``, ``"optimizer"``.
        link: bytes a second to the host, and as many back, such as ``"25 GB/s"``.
        offload_from: bytes below which a tensor stays on the device, such as ``"1 MiB"``.
        ahead: tensors fetched ahead of the one that is needed.
        behind: tensors that may wait for their copy to the host before compute waits for them.
        wait: compute waits for every copy.
    """

    checkpoint: tuple[str, ...] = ()
    save: tuple[str, ...] = ()
    early_stop: bool = True
    preserve_rng: bool = True
    optimizer: str | None = None
    in_backward: bool = False
    accumulate: int = 1
    freeze: tuple[str, ...] = ()
    dtype: str | None = None
    autocast: str | None = None
    shard: str | None = None
    offload: tuple[str, ...] = ()
    link: str | None = None
    offload_from: str | None = None
    ahead: int = 2
    behind: int = 4
    wait: bool = False

    def __post_init__(self) -> None:
        problems = []
        if self.offload and self.link is None:
            problems.append("offload: over what? Give the link's bytes a second each way, such as --link '25 GB/s'")
        plain = {field.name: field.default for field in fields(self)}
        copies = [name for name in ("link", "offload_from", "ahead", "behind", "wait") if getattr(self, name) != plain[name]]
        if copies and not self.offload:
            names = ", ".join(name.replace("_", "-") for name in copies)
            problems.append(f"{names}: nothing goes to the host: say what does, with --offload saved or --offload optimizer")
        if self.save and not self.checkpoint:
            problems.append("save: no module is recomputed, so that there is nothing to save all the same: name some with --checkpoint")
        try:
            self.variant()
        except InputError as error:
            problems += error.problems
        if problems:
            raise InputError(problems)

    def variant(self) -> Variant:
        """Return what is changed in the program, beside its types."""
        return Variant(self.optimizer, self.in_backward, self.accumulate, self.freeze)

    @property
    def needs_program(self) -> tuple[str, ...]:
        """The names of the strategies that change the program, but the optimizer."""
        plain = Strategies()
        return tuple(name for name in PROGRAM if getattr(self, name) != getattr(plain, name))

    @property
    def empty(self) -> bool:
        """Whether nothing is to be done."""
        return self == Strategies(early_stop=self.early_stop, preserve_rng=self.preserve_rng)

    def sharding(self) -> Sharding | None:
        """Return what is divided."""
        return None if self.shard is None else Sharding.parse(self.shard)

    def offloaded(self) -> Offload | None:
        """Return what lies on the host.

        Raises:
            InputError: the link or the least size cannot be read.
        """
        if self.link is None:
            return None
        try:
            link = Link(parse_rate(self.link), self.ahead, self.behind, not self.wait)
            return Offload(self.offload, link, LEAST if self.offload_from is None else parse_bytes(self.offload_from))
        except UnitError as error:
            raise InputError(f"offload: {error}") from None

    def rungs(self) -> Iterator[tuple[str, Strategies]]:
        """Yield the strategies one more at a time, each with the name of what is added; the first has none."""
        made = Strategies(early_stop=self.early_stop, preserve_rng=self.preserve_rng)
        yield "as captured", made
        for names, told in (
            (("accumulate",), f"{self.accumulate} micro-batches"),
            (("dtype",), f"model in {self.dtype}"),
            (("autocast",), f"autocast to {self.autocast}"),
            (("optimizer",), f"optimizer {self.optimizer}"),
            (("in_backward",), "optimizer in the backward pass"),
            (("freeze",), f"freeze {', '.join(self.freeze)}"),
            (("shard",), f"shard {self.shard}"),
            (("checkpoint", "save"), f"recompute {', '.join(self.checkpoint)}"),
            (("offload", "link", "offload_from", "ahead", "behind", "wait"), f"offload {', '.join(self.offload)}"),
        ):
            more = replace(made, **{name: getattr(self, name) for name in names})
            if more != made:
                made = more
                yield told, made


def read_strategies(path: str | PathLike[str]) -> Strategies:
    """Read strategies from the TOML file *path*, whose keys are the attributes of :class:`Strategies`.

    Raises:
        InputError: it cannot be read, or has keys or values that are not known. Every problem has a line.
    """
    try:
        given: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"cannot read the strategies {str(path)!r}: {reason}") from None
    plain = Strategies()
    known = [field.name for field in fields(Strategies)]
    problems: list[str] = []
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            close = closest(key, known)
            problems.append(f"{path}: unknown key {key!r}" + (f": did you mean {close!r}?" if close else f": known are {', '.join(known)}"))
            continue
        read = _as_list(value) if key in LISTS else value
        wanted = tuple if key in LISTS else str if getattr(plain, key) is None else type(getattr(plain, key))
        if read is None or type(read) is not wanted:
            what = {tuple: "a list of texts", str: "a text", bool: "true or false", int: "a whole number"}[wanted]
            problems.append(f"{path}: {key} is {value!r}: give {what}")
        values[key] = read
    if problems:
        raise InputError(problems)
    return Strategies(**values)


def _as_list(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else None


def what_if_strategies(
    trace: Trace, strategies: Strategies, recapture: Recapture | None = None, *, capacity: int | None = None, settings: str = ""
) -> Recompute:
    """Return what *trace*, a capture, would be with *strategies*.

    Args:
        trace: a capture of the program as it is.
        strategies: what is to be done.
        recapture: captures the program with what is changed in it; None where there is only the capture.
        capacity: bytes of the device, in place of the card's own.
        settings: allocator options in PyTorch's syntax.

    Raises:
        InputError: the program would have to be changed and is not there, or the answer would not be exact, and why.
    """
    changed, optimizer = trace, strategies.optimizer
    again = recapture is not None and bool(strategies.needs_program or optimizer is not None)
    if recapture is not None and again:
        changed, optimizer = recapture(strategies), None
    elif strategies.needs_program:
        raise InputError(
            f"{name.replace('_', '-')}: a capture does not tell {PROGRAM[name]}: ask about the FILE.py, which is captured again"
            for name in strategies.needs_program
        )
    found = what_if(
        changed,
        strategies.checkpoint,
        strategies.save or None,
        strategies.early_stop,
        strategies.preserve_rng,
        optimizer=optimizer,
        sharding=strategies.sharding(),
        offloaded=strategies.offloaded(),
        base=trace,
        capacity=capacity,
        settings=settings,
    )
    told = dict.fromkeys((*_told(strategies, again), *found.edited_by))
    return replace(found, edited_by=tuple(told))


def _told(strategies: Strategies, changed: bool) -> Iterator[str]:
    if changed:
        yield from strategies.variant().told()
        if strategies.dtype is not None:
            yield f"model in {strategies.dtype}"
        if strategies.autocast is not None:
            yield f"autocast to {strategies.autocast}"


@dataclass(frozen=True)
class Rung:
    """One more strategy.

    Attributes:
        name: what is added.
        found: the step with it and all before it, beside the step as captured.
        trains_otherwise: whether what is added changes what is trained, and not only how.
    """

    name: str
    found: Recompute
    trains_otherwise: bool


def ladder(
    trace: Trace, strategies: Strategies, recapture: Recapture | None = None, *, capacity: int | None = None, settings: str = ""
) -> tuple[Rung, ...]:
    """Return *trace* with *strategies* added one at a time, in the order of :meth:`Strategies.rungs`.

    Raises:
        InputError: as for :func:`what_if_strategies`.
    """
    rungs: list[Rung] = []
    frozen: tuple[str, ...] = ()
    for name, some in strategies.rungs():
        found = what_if_strategies(trace, some, recapture, capacity=capacity, settings=settings)
        rungs.append(Rung(name, found, some.freeze != frozen))
        frozen = some.freeze
    return tuple(rungs)
