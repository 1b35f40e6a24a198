"""Recurrent layers as they run on CUDA: in cuDNN's own kernels, or, without cuDNN, cell by cell with fused cells.

ATen's ``native/RNN.cpp`` decides: on CUDA a layer never multiplies its whole input at once, as it does on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor

aten = torch.ops.aten
Cell: TypeAlias = Callable[[Any, Any, "list[Any]"], Any]

LSTM, GRU, TANH, RELU = "lstm", "gru", "rnn_tanh", "rnn_relu"
GATES = {LSTM: 4, GRU: 3, TANH: 1, RELU: 1}
MODES = {RELU: 0, TANH: 1, LSTM: 2, GRU: 3}
OPERATORS = {kind: getattr(aten, kind).input for kind in GATES}
GRU_KEPT = 5
"""What the fused cell of a GRU keeps for backward, in widths of its state."""


def layers(kind: str) -> Callable[..., Any]:
    """Return what the operator of the recurrent layers of *kind* does on CUDA."""

    def run(
        tensor: Any,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        if not isinstance(tensor, FakeTensor):
            return OPERATORS[kind].decompose(tensor, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        states = list(hx) if kind == LSTM else [hx]
        projected = kind == LSTM and states[0].shape[-1] != states[1].shape[-1]
        if projected:
            return OPERATORS[kind].decompose(tensor, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        if torch.backends.cudnn.enabled:
            return _in_cudnn(kind, tensor, states, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return _by_cells(kind, tensor, states, params, has_biases, num_layers, dropout if train else 0.0, bidirectional, batch_first)

    return run


def _in_cudnn(
    kind: str,
    tensor: Any,
    states: list[Any],
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    cell = states[1] if kind == LSTM else None
    hidden = states[0].shape[-1]
    per_layer = 4 if has_biases else 2
    found = aten._cudnn_rnn(
        tensor, list(params), per_layer, None, states[0], cell, MODES[kind], hidden, 0, num_layers, batch_first, dropout, train,
        bidirectional, [], None,
    )  # fmt: skip
    return tuple(found[:3]) if kind == LSTM else tuple(found[:2])


def _by_cells(
    kind: str,
    tensor: Any,
    states: list[Any],
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    params = list(params)
    per_layer = 4 if has_biases else 2
    sides = 2 if bidirectional else 1
    starts = [list(state.unbind(0)) for state in states]
    here = tensor.transpose(0, 1) if batch_first else tensor
    ends: list[list[Any]] = [[] for _ in states]
    for layer in range(num_layers):
        made = []
        for side in range(sides):
            number = layer * sides + side
            weights = params[number * per_layer : (number + 1) * per_layer]
            begin = [part[number] for part in starts]
            steps = here.unbind(0)
            outputs = []
            for step in reversed(steps) if side else steps:
                begin = _CELLS[kind](step, begin, weights)
                outputs.append(begin[0])
            del steps
            if side:
                outputs.reverse()
            made.append(torch.stack(outputs, 0))
            del outputs
            for part, end in zip(ends, begin, strict=True):
                part.append(end)
            del begin
        here = torch.cat(made, -1) if bidirectional else made[0]
        del made
        if dropout and layer < num_layers - 1:
            here = torch.dropout(here, dropout, True)
    last = [torch.stack(part, 0) for part in ends]
    return (here.transpose(0, 1) if batch_first else here, *last)


def _lstm_cell(tensor: Any, state: list[Any], weights: list[Any]) -> list[Any]:
    inner, outer = torch.matmul(tensor, weights[0].t()), torch.matmul(state[0], weights[1].t())
    found = list(aten._thnn_fused_lstm_cell(inner, outer, state[1], *weights[2:]))
    return found[:2]


def _gru_cell(tensor: Any, state: list[Any], weights: list[Any]) -> list[Any]:
    inner, outer = torch.matmul(tensor, weights[0].t()), torch.matmul(state[0], weights[1].t())
    return list(aten._thnn_fused_gru_cell(inner, outer, state[0], *weights[2:]))[:1]


def _plain_cell(nonlinearity: Callable[[Any], Any]) -> Cell:
    def cell(tensor: Any, state: list[Any], weights: list[Any]) -> list[Any]:
        biases = weights[2:] or (None, None)
        outer = torch.nn.functional.linear(state[0], weights[1], biases[1])
        return [nonlinearity(outer.add_(torch.nn.functional.linear(tensor, weights[0], biases[0])))]

    return cell


_CELLS: dict[str, Cell] = {LSTM: _lstm_cell, GRU: _gru_cell, TANH: _plain_cell(torch.tanh), RELU: _plain_cell(torch.relu)}


def lstm_cell(tensor: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of an LSTM."""
    if not isinstance(tensor, FakeTensor):
        return aten.lstm_cell.default.decompose(tensor, hx, w_ih, w_hh, b_ih, b_hh)
    return tuple(_lstm_cell(tensor, list(hx), _given(w_ih, w_hh, b_ih, b_hh)))


def gru_cell(tensor: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of a GRU."""
    if not isinstance(tensor, FakeTensor):
        return aten.gru_cell.default.decompose(tensor, hx, w_ih, w_hh, b_ih, b_hh)
    return _gru_cell(tensor, [hx], _given(w_ih, w_hh, b_ih, b_hh))[0]


def _given(*weights: Any) -> list[Any]:
    return [weight for weight in weights if weight is not None]


# ── what the fused kernels return ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _lstm_forward(args: tuple[Any, ...]) -> Any:
    gates, cell = args[0], args[2]
    return cell.new_empty(cell.shape), cell.new_empty(cell.shape), gates.new_empty(gates.shape)


def _lstm_backward(args: tuple[Any, ...]) -> Any:
    _, _, cell, _, kept, has_bias = args
    gates = kept.new_empty(kept.shape)
    return gates, cell.new_empty(cell.shape), aten.sum.dim_IntList(gates, [0]) if has_bias else None


def _gru_forward(args: tuple[Any, ...]) -> Any:
    state = args[2]
    return state.new_empty(state.shape), state.new_empty(state.shape[0], GRU_KEPT * state.shape[1])


def _gru_backward(args: tuple[Any, ...]) -> Any:
    gradient, _, has_bias = args
    batch, width = gradient.shape
    inner, outer = (gradient.new_empty(batch, 3 * width) for _ in range(2))
    biases = [aten.sum.dim_IntList(gates, [0]) if has_bias else None for gates in (inner, outer)]
    return inner, outer, gradient.new_empty(gradient.shape), *biases


def _cudnn_forward(args: tuple[Any, ...]) -> Any:
    tensor, _, _, _, hidden, cell, mode, width, _, count, batch_first, _, train, bidirectional = args[:14]
    sides = 2 if bidirectional else 1
    rows = tensor.shape[0] * tensor.shape[1]
    output = tensor.new_empty(*tensor.shape[:2], sides * width)
    if batch_first:
        output = tensor.new_empty(tensor.shape[1], tensor.shape[0], sides * width).transpose(0, 1)
    end = hidden.new_empty(hidden.shape)
    cell_end = tensor.new_empty(0) if cell is None else cell.new_empty(cell.shape)
    kept = reserve_bytes(mode, rows, width, count, sides, tensor.element_size()) if train else 0
    return output, end, cell_end, tensor.new_empty(kept, dtype=torch.uint8), tensor.new_empty(0)


def reserve_bytes(mode: int, rows: int, width: int, count: int, sides: int, size: int) -> int:
    """Return about how many bytes cuDNN keeps for backward: what all gates gave, and the states, of every step, layer and direction."""
    widths = {MODES[LSTM]: 6, MODES[GRU]: 5}.get(mode, 2)
    return widths * rows * width * count * sides * size


def _cudnn_backward(args: tuple[Any, ...]) -> Any:
    tensor, weights, _, _, hidden, cell = args[:6]
    wanted = args[-1]
    parts = [tensor.new_empty(tensor.shape), hidden.new_empty(hidden.shape), None if cell is None else cell.new_empty(cell.shape)]
    gradients: list[Any] = []
    if wanted[3]:
        flat = tensor.new_empty(sum(weight.numel() for weight in weights))
        at = 0
        for weight in weights:
            gradients.append(flat[at : at + weight.numel()].view(weight.shape))
            at += weight.numel()
    return (*parts, gradients)


RESULTS: dict[Any, Callable[[tuple[Any, ...]], Any]] = {
    aten._thnn_fused_lstm_cell.default: _lstm_forward,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_backward,
    aten._thnn_fused_gru_cell.default: _gru_forward,
    aten._thnn_fused_gru_cell_backward.default: _gru_backward,
    aten._cudnn_rnn.default: _cudnn_forward,
    aten._cudnn_rnn_backward.default: _cudnn_backward,
}
"""Operators that have a kernel on CUDA only, with what makes results like theirs."""
