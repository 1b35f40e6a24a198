"""Builds a model without memory, and gives it fake tensors for the ones without values.

A model is built under ``torch.device("meta")`` outside of fake mode, where copying, converting and initialising cost nothing and work;
then each parameter and buffer is replaced by a fake one on the device, those that share storage by ones that share storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

AT_FIRST = 0.5
"""What a scalar is taken to be in the first step of an optimizer: neither 0 nor 1, which some divide by, or by the rest to 1."""
META = torch.device("meta")
READ_SCALAR = torch.ops.aten._local_scalar_dense.default


class _Scalars(TorchDispatchMode):
    """Answers the reading of scalars that have no value, as some models do while they are built, with *answer*."""

    def __init__(self, answer: float = 0.0) -> None:
        super().__init__()
        self._answer = answer

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is READ_SCALAR and args[0].is_meta:
            return self._answer if args[0].is_floating_point() else 0
        return func(*args, **(kwargs or {}))


class _OnMeta(TorchFunctionMode):
    """Lets every device that a model asks for while it is built mean the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *(META if _is_device(arg) else arg for arg in args[1:]))
        if _is_device(kwargs.get("device")) and func is not torch.device:
            kwargs = {**kwargs, "device": META}
        return func(*args, **kwargs)


def _is_device(given: Any) -> bool:
    """Whether *given* names a device other than the host's."""
    if isinstance(given, int):
        return False  # the index of one, or a dimension
    return isinstance(given, (str, torch.device)) and str(given).partition(":")[0] not in ("cpu", "meta")


def build_on_meta(build: Callable[[], Any], dtype: Any = None) -> Any:
    """Return the module that *build* makes, on the meta device, its floating-point tensors in *dtype* if one is given."""
    with ExitStack() as undo:
        undo.enter_context(moves_left_out())
        with torch.device("meta"), _Scalars(), _OnMeta():
            model = build()
        if dtype is not None and isinstance(model, torch.nn.Module):
            model = model.to(dtype)
    return model


def flatten_recurrent(model: Any) -> int:
    """Let the weights of each recurrent layer of *model* lie in one storage, as for cuDNN; return how many layers there are."""
    layers = [module for module in model.modules() if isinstance(module, torch.nn.RNNBase)]
    for layer in layers:
        weights = list(layer.parameters())
        if len({weight.dtype for weight in weights}) == 1 and all(weight.is_meta for weight in weights):
            flat = torch.empty(sum(weight.numel() for weight in weights), dtype=weights[0].dtype, device="meta")
            at = 0
            for weight in weights:
                weight.data = flat[at : at + weight.numel()].view(weight.shape)
                at += weight.numel()
    return len(layers)


@contextmanager
def moves_left_out() -> Iterator[None]:
    """Let ``module.to(device)`` and ``module.cuda()`` stay where they are; a dtype or memory format still converts."""
    module, to, cuda, cpu = torch.nn.Module, torch.nn.Module.to, torch.nn.Module.cuda, torch.nn.Module.cpu

    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        _, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
        wanted = {name: value for name, value in (("dtype", dtype), ("memory_format", layout)) if value is not None}
        return to(self, **wanted) if wanted else self

    module.to, module.cuda, module.cpu = convert, _stay, _stay
    try:
        yield
    finally:
        module.to, module.cuda, module.cpu = to, cuda, cpu


def _stay(module: Any, *_args: Any) -> Any:
    return module


def to_fake(mode: Any, model: Any) -> None:
    """Replace the tensors of *model* by fake ones of *mode* on the CPU: parameters, buffers, and tensors that are plain attributes."""
    fakes = _Fakes(mode, model)
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = fakes.of(tensor)
        for name, value in vars(module).items():
            if not name.startswith("_") and isinstance(value, (torch.Tensor, list, tuple, dict)):
                replaced = torch.utils._pytree.tree_map_only(torch.Tensor, fakes.of, value)
                setattr(module, name, replaced)


class _Fakes:
    """Makes a fake tensor for each tensor, once."""

    def __init__(self, mode: Any, model: Any) -> None:
        self._mode = mode
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._bases: dict[int, Any] = {}
        users: dict[int, set[int]] = {}
        for tensor in (*model.parameters(), *model.buffers()):
            users.setdefault(id(tensor.untyped_storage()), set()).add(id(tensor))
            self._kept.append(tensor)
        self._shared = {storage for storage, tensors in users.items() if len(tensors) > 1}

    def of(self, tensor: Any) -> Any:
        """Return the fake tensor for *tensor*."""
        if isinstance(tensor, torch._subclasses.fake_tensor.FakeTensor):
            return tensor
        if id(tensor) not in self._made:
            self._kept.append(tensor)  # an id is an identity only while its object lives
            with self._mode:
                made = self._view(tensor)
                if isinstance(tensor, torch.nn.Parameter):
                    made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
            self._made[id(tensor)] = made
        return self._made[id(tensor)]

    def _view(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if id(storage) not in self._shared:
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
        base = self._bases.get(id(storage))
        if base is None:
            base = self._bases[id(storage)] = torch.empty(storage.nbytes() // tensor.element_size(), dtype=tensor.dtype, device="cpu")
        return base.view(tensor.dtype).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def first_step(model: Any, optimizer: Any) -> None:
    """Let *optimizer* make its state for *model*, whose tensors have no values, with gradients that have none."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter, requires_grad=False)
    with _Scalars(AT_FIRST), torch.device("meta"):
        for each in optimizer if isinstance(optimizer, (list, tuple)) else (optimizer,):
            each.step()
