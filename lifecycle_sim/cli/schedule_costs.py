"""What the layers of a model take, as ``lifecycle-sim schedule`` was told: from a file, from a model that is captured, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lifecycle_sim.cli.progress import progress
from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Clock
from lifecycle_sim.program.expressions import evaluate_time

if TYPE_CHECKING:
    from lifecycle_sim.study.pipeline.schedule_costs import Model
    from lifecycle_sim.study.pipeline.schedule_cut import Cut

SIZE = "batch"
"""The parameter that counts the samples of a micro-batch."""


@dataclass(frozen=True)
class CostSource:
    """Where the costs come from; the attributes are the command's options."""

    costs: str | None
    program: str | None
    parameters: Mapping[str, int]
    device: str
    dtype: str | None
    autocast: str | None
    cut: str | None
    tflops: int | None
    communication: str | None
    recompute: bool
    cutting: Cut

    @property
    def name(self) -> str:
        """What the costs are called."""
        return self.costs or self.program or "every stage takes a tick for each kind of work"

    @property
    def title(self) -> str:
        """The name for a figure: that of the file alone."""
        return Path(self.costs or self.program or "").name

    def model(self, size: int | None = None) -> Model:
        """Return the layers, with micro-batches of *size* samples if it is given.

        Raises:
            InputError: the file, the model or the communication's time cannot be used.
        """
        from lifecycle_sim.study.pipeline.schedule_costs import UNIT

        parameters = dict(self.parameters) | ({} if size is None else {SIZE: size})
        if self.costs is not None:
            from lifecycle_sim.study.pipeline.schedule_file import load_layers

            try:
                model = load_layers(self.costs, parameters)
            except ScenarioError as error:
                if size is None or not any(problem.startswith(f"unknown parameter {SIZE!r}") for problem in error.problems):
                    raise
                mend = f"add [parameters] with {SIZE} = 1, and sizes such as '{SIZE} * 4 MiB'"
                raise ScenarioError(f"{self.costs} has no parameter {SIZE}, the size of a micro-batch: {mend}") from None
        elif self.program is not None:
            model = self._captured(self.program, parameters)
        else:
            model = UNIT
        model = replace(model, recomputes=self.recompute, cut=self.cutting)
        return model if self.communication is None else replace(model, communication=self._transfer(model))

    def _captured(self, program: str, parameters: dict[str, int]) -> Model:
        from lifecycle_sim.cli.capture import split_program
        from lifecycle_sim.sources.capture import capture_file
        from lifecycle_sim.study.pipeline.schedule_capture import captured_layers

        path, function = split_program(program)
        sized = f" with {SIZE} {parameters[SIZE]:,}" if SIZE in parameters else ""
        with progress(f"capturing {program}{sized}"):
            captured = capture_file(
                path, function, parameters, device=self.device, dtype=self.dtype, autocast=self.autocast, warmup=1, steps=1
            )
        return captured_layers(captured, self.cut, self.tflops)

    def _transfer(self, model: Model) -> int:
        """The communication's time in the clock of *model*.

        Raises:
            BadParameter: it is no time, or of another clock.
        """
        try:
            given = self.communication or "0"
            time, clock = evaluate_time(int(given) if given.strip().removeprefix("-").isdecimal() else given, {})
        except ScenarioError as error:
            raise click.BadParameter(str(error), param_hint="--communication") from None
        if clock not in (Clock.NONE, model.clock):
            mend = "a duration such as '50 us'" if model.clock is Clock.NANOSECONDS else "a whole number of ticks"
            raise click.BadParameter(f"{given!r} is of another clock than the costs: give {mend}", param_hint="--communication")
        return time
