"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One rule that a trace breaks.

    Attributes:
        device: the device concerned, or None if it is the trace as a whole.
        event: index of the first event concerned, or None where the finding is not about events.
        code: a stable short name of the rule, such as ``"alloc_of_live"``.
        text: one sentence for people.
        severity: ``"error"`` or ``"warning"``.
        count: how many events, segments, blocks or spans break the rule.
    """

    device: str | None
    event: int | None
    code: str
    text: str
    severity: Severity
    count: int = 1
