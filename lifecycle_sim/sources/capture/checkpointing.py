"""Lets torch checkpoint modules of a model: the torch half of applying a plan. It takes names of modules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts, set_checkpoint_early_stop

from lifecycle_sim.errors import InputError
from lifecycle_sim.sources.capture.plan import Recomputed


class Checkpointed:
    """The forward of a module that torch checkpoints; it stands in the module's own place for it, and is copied and pickled with it."""

    def __init__(self, forward: Callable[..., Any], recomputed: Recomputed) -> None:
        self.__wrapped__ = forward
        self.recomputed = recomputed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward, and keep its inputs alone for the backward pass."""
        asked = self.recomputed
        options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": asked.preserve_rng}
        if asked.saved:
            options["context_fn"] = partial(create_selective_checkpoint_contexts, [_operator(name) for name in asked.saved])
        with nullcontext() if asked.early_stop else set_checkpoint_early_stop(False):
            return checkpoint(self.__wrapped__, *args, **options, **kwargs)


def checkpoint_modules(model: torch.nn.Module, recomputed: Recomputed) -> None:
    """Let torch checkpoint the modules of *model* that *recomputed* names, and no others that were so before.

    Raises:
        InputError: there is no such module or operator; nothing is changed then.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    problems = [f"the model has no module {name!r}" for name in recomputed.modules if name not in modules]
    for name in recomputed.saved:
        try:
            _operator(name)
        except (AttributeError, ValueError):
            problems.append(f"torch has no operator {name!r}: name one with its overload, such as 'aten.mm.default'")
    if problems:
        raise InputError(problems)
    for module in modules.values():
        forward = vars(module).get("forward")
        if isinstance(forward, Checkpointed):
            _put_back(module, forward.__wrapped__)
    for module in {id(modules[name]): modules[name] for name in recomputed.modules}.values():
        module.forward = Checkpointed(module.forward, recomputed)


def _put_back(module: torch.nn.Module, forward: Callable[..., Any]) -> None:
    """Give *module* its own forward again: that of its class, if it was that."""
    del module.forward
    if module.forward != forward:
        module.forward = forward


def _operator(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
