"""Lets ``"cuda"`` mean the CPU, where a program runs without a card."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import torch


def replace(undo: ExitStack, owner: Any, name: str, replacement: Any) -> None:
    """Set *name* of *owner* to *replacement* until *undo* closes."""
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, replacement)


def here(device: Any) -> Any:
    """Return the CPU for a CUDA device or its name, and anything else as it is."""
    return "cpu" if str(device).partition(":")[0] == "cuda" else device


def moved_here(move: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``Tensor.to`` for a program that runs on the CPU."""

    @wraps(move)
    def moved(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(here(arg) if isinstance(arg, (str, torch.device)) else arg for arg in args)
        if kwargs.get("device") is not None:
            kwargs["device"] = here(kwargs["device"])
        return move(tensor, *args, **kwargs)

    return moved
