"""One training or inference step as people write it: what a capture runs when no step is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import torch

from lifecycle_sim.errors import CaptureError


def training_step(model: Any, optimizer: Any, batch: Any, autocast: Any = None, share: int = 1, update: bool = True) -> None:
    """Forward, backward, optimizer step, ``zero_grad``. The model's result is its loss, or holds it as ``loss`` or in the first place.

    With several micro-batches the loss is divided by their number, *share*, and all but the last end after the backward.
    """
    with torch.autocast("cuda", dtype=autocast) if autocast is not None else nullcontext():
        loss = loss_of(call(model, batch))
    if share > 1:
        loss = loss / share
    loss.backward()
    if not update:
        return
    for each in optimizer if isinstance(optimizer, Iterable) else (optimizer,):
        each.step()
        each.zero_grad()


def inference_step(model: Any, _optimizer: Any, batch: Any, autocast: Any = None) -> Any:
    """The model's forward in inference mode; its result lives until the next step's is there."""
    with torch.inference_mode(), torch.autocast("cuda", dtype=autocast) if autocast is not None else nullcontext():
        return call(model, batch)


def call(model: Any, batch: Any) -> Any:
    """Call *model* with *batch*: a mapping by names, a tuple or list by places, anything else as the one argument."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def loss_of(result: Any) -> Any:
    """Return the loss in what a model returned.

    Raises:
        CaptureError: there is none that is a scalar.
    """
    loss = result
    if not isinstance(result, torch.Tensor):
        loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
        if loss is None and isinstance(result, (tuple, list)) and result:
            loss = result[0]
    if not isinstance(loss, torch.Tensor) or loss.dim():
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(result).__name__}"
        raise CaptureError(
            f"the model returned {what} and no scalar loss: return the loss, or a tuple that begins with it, or give a step of your own"
        )
    return loss
