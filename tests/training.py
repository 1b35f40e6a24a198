"""Written-out training loops and forward passes, with stacks, and where their steps end."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Frame, Kind, Span, StackBuilder, Trace

MALLOC = Frame("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**)", "", 0)
CALL = Frame("_call_impl", "/env/lib/python3/site-packages/torch/nn/modules/module.py", 1794)
ADAM = Frame("step", "/env/lib/python3/site-packages/torch/optim/adam.py", 238)
NODE = Frame("torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)", "??", 0)


def line(number: int, name: str = "<module>", file: str = "train.py") -> Frame:
    return Frame(name, f"/project/{file}", number)


LEAK = line(40)
FORWARD = (line(12), CALL)


@dataclass
class Recorder:
    """Writes events down; ``free`` takes what ``alloc`` gave."""

    rows: list[tuple[Kind, int, int, int]] = field(default_factory=list)
    stacks: StackBuilder = field(default_factory=StackBuilder)
    spans: list[Span] = field(default_factory=list)

    def alloc(self, size: int, *outermost_first: Frame) -> tuple[int, int]:
        address = len(self.rows)
        self.rows.append((Kind.ALLOC, address, size, self.stacks.add([MALLOC, *reversed(outermost_first)])))
        return address, size

    def free(self, *storages: tuple[int, int]) -> None:
        self.rows += [(Kind.FREE, address, size, -1) for address, size in storages]

    def trace(self, first: int = 0, stop: int | None = None, **fields: object) -> Trace:
        """The events from *first* on, before *stop*; without a final state."""
        rows = self.rows[first:stop]
        kind, address, size, stack = zip(*rows, strict=True) if rows else ((), (), (), ())
        events = Events.of(kind, address, size, stack=stack)
        device = DeviceTrace("cuda:0", events, Basis.REQUESTED, spans=tuple(self.spans), **fields)  # type: ignore[arg-type]
        return Trace((device,), "native", Evidence.MEASURED, Clock.NONE, stacks=self.stacks.table())


def train(steps: int, layers: int = 4, leaks: Sequence[int] = (), annotate: bool = False) -> tuple[Recorder, list[int]]:
    """A training loop whose first step makes optimizer state; step ``i`` leaks ``leaks[i]`` bytes. Returns where steps end, too."""
    out = Recorder()
    weights = [out.alloc(1000 + layer, line(5, "__init__", "model.py")) for layer in range(layers)]
    ends = []
    for step in range(steps):
        batch = out.alloc(64, line(10))
        saved = [out.alloc(3000 + layer, *FORWARD, line(20, "forward", "model.py")) for layer in range(layers)]
        gradients = []
        for activation, weight in zip(reversed(saved), reversed(weights), strict=True):
            scratch = out.alloc(50, NODE)
            gradients.append(out.alloc(weight[1], NODE))
            out.free(scratch, activation)
        begin = len(out.rows)
        if step == 0:
            for weight in weights * 2:
                out.alloc(weight[1], line(14), ADAM)
        for weight in weights:
            out.free(out.alloc(weight[1], line(14), ADAM))
        out.free(batch)
        if annotate:
            out.spans.append(Span("annotation", "Optimizer.step#AdamW.step", begin, len(out.rows)))
            out.spans.append(Span("annotation", "Optimizer.zero_grad#AdamW.zero_grad", len(out.rows), len(out.rows) + layers))
        out.free(*gradients)
        if step < len(leaks) and leaks[step]:
            out.alloc(leaks[step], LEAK)
        ends.append(len(out.rows))
    return out, ends


def forward(layers: int, ends_that_differ: bool = True) -> Recorder:
    """One forward pass through equal layers, between an embedding and a head."""
    out = Recorder()
    model = (*FORWARD, line(30, "forward", "model.py"), CALL)
    hidden = out.alloc(7000, *FORWARD, line(29, "forward", "model.py")) if ends_that_differ else None
    for _ in range(layers):
        inner = [out.alloc(100 * number, *model, line(50 + number, "forward", "block.py")) for number in range(1, 11)]
        if hidden:
            out.free(hidden)
        hidden = inner.pop()
        out.free(*inner)
    if ends_that_differ:
        out.alloc(9000, *FORWARD, line(31, "forward", "model.py"))
    return out


def without_stacks(trace: Trace) -> Trace:
    (device,) = trace.devices
    bare = Events.of(device.events.kind, device.events.address, device.events.size)
    return replace(trace, devices=(replace(device, events=bare),))
