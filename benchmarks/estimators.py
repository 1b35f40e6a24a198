"""Peaks of checkpointed steps as three ways tell them, beside what the CPU's allocator did: ``python -m benchmarks.estimators``.

* the exact edit of one capture without checkpointing;
* the memory rows of torch's automatic selective checkpointing (``torch.distributed._tools``: what MemTracker found of each module, put
  together as ``sac_milp`` does, with all of a recomputed block discarded);
* ``activation_memory_budget`` of torch.compile: a share of saved bytes. It tells no peak; held against it is the one that the share
  implies: what is not saved is taken from the peak at a budget of 1.

The last two are asked in the way that suits them: the tracker's rows for the same blocks, the budget for steps compiled with it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType, _ModState
from torch.profiler import ProfilerActivity, profile

import lifecycle_sim as ls
import scenarios.capture.gpt as gpt
from lifecycle_sim.program.remat import chosen_regions, edit
from lifecycle_sim.study.recompute import CPU_RNG_STATE
from tests.remat_models import graph_on_cpu, plain_step

gpt.VOCABULARY = 2000
LAYERS = 6
BUILD = partial(gpt.Gpt, width=128, layers=LAYERS, heads=8)
BATCH = partial(gpt.make_batch, 4, 256)
PLANS: tuple[tuple[int, ...], ...] = ((), (0,), (5,), (0, 1, 2), (3, 4, 5), (0, 2, 4), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5))
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)


def measured(model: Any, run: Callable[[Any, Any], Any] = plain_step) -> int:
    """The highest level that the allocator reached in a third step, above what was there before it."""
    for _ in range(2):
        plain_step(model, BATCH())
        model.zero_grad()
    return max(levels(run, model, BATCH()))


def saved(model: Any) -> int:
    """What is held between the forward and the backward pass of a third step."""
    for _ in range(2):
        plain_step(model, BATCH())
        model.zero_grad()
    return levels(lambda model, batch: model(*batch), model, BATCH())[-1]


def levels(run: Callable[[Any, Any], Any], model: Any, batch: Any) -> list[int]:
    """The levels of the allocator while *run* runs, above what was there before it."""
    gc.collect()
    gc.disable()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        kept = run(model, batch)
    gc.enable()
    changes = [event.nbytes() for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    del kept
    return list(accumulate(changes))


class Rows:
    """What torch's tracker finds of each module of a step without checkpointing, and the peak that the rows of its planner tell."""

    def __init__(self) -> None:
        with FakeTensorMode():
            model, tracker = BUILD(), MemTracker()
            tracker.track_external(model)
            order: list[str] = []
            for name, module in model.named_modules():
                module.register_forward_hook(lambda *_, name=name: order.append(name))
            with tracker:
                for step in range(2):
                    plain_step(model, BATCH())
                    model.zero_grad()
                    if not step:
                        tracker.reset_mod_stats()
        self.place = {name: place for place, name in enumerate(order[len(order) // 2 :])}
        names = {module: name for name, module in model.named_modules()}
        self.rows = []
        cpu = torch.device("cpu")
        for module, found in tracker.memory_tracking.items():
            told = {state: found.snapshots[state][-1][cpu] for state in found.snapshots}
            act, temporary, gradient = _MemRefType.ACT, _MemRefType.TEMP, _MemRefType.GRAD
            self.rows.append(
                (
                    names[module],
                    told[_ModState.PRE_BW][gradient],
                    told[_ModState.POST_FW][act],
                    told[_ModState.PEAK_BW][temporary] - told[_ModState.PRE_BW][temporary],
                    max(0, told[_ModState.POST_FW][act] - told[_ModState.PRE_FW][act] - found.output_mem),
                )
            )

    def peak(self, blocks: Sequence[str]) -> int:
        """The peak without parameters."""
        discarded = {name: size for name, _, _, _, size in self.rows if name in blocks}
        return max(
            gradients + activations + more - sum(size for block, size in discarded.items() if self.place[block] < self.place[name])
            for name, gradients, activations, more, _ in self.rows
        )


def compiled(share: float, ask: Callable[[Any], int] = measured) -> int:
    """What *ask* finds of a step compiled with *share* of the saved bytes as its budget: by default its measured peak."""
    import torch._functorch.config as config

    torch._dynamo.reset()
    with config.patch(activation_memory_budget=share):
        return ask(torch.compile(BUILD(), backend="aot_eager_decomp_partition"))


def error(told: int, found: int) -> str:
    """A difference as a share of what was found."""
    return f"{100 * (told - found) / found:+.3f} %"


def main() -> None:
    """Print both tables."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    graph, rows = graph_on_cpu(BUILD, BATCH), Rows()
    own = 2 * 4 * 256 * 8  # the batch, which the capture makes in the step and the measurement before it
    print(f"{'blocks':>12} {'measured':>12} {'exact edit':>20} {'tracker rows':>22}")
    for plan in PLANS:
        blocks = [f"blocks.{number}" for number in plan]
        found = measured(ls.apply(BUILD(), blocks))
        calls = chosen_regions(graph, blocks) if blocks else ()
        told = max(high for _, high, _ in edit(graph, calls, rng_state=CPU_RNG_STATE).rows()) - own
        other = rows.peak(blocks)
        print(f"{','.join(map(str, plan)) or 'none':>12} {found:12,} {told:12,} {told - found:+5,} B {other:12,} {error(other, found)}")
    peaks, at_most = {share: compiled(share) for share in SHARES}, compiled(1.0, saved)
    print(f"\n{'budget':>12} {'measured':>12} {'implied':>12}")
    for share, found in peaks.items():
        implied = peaks[1.0] - round((1 - share) * at_most)
        print(f"{share:>12} {found:12,} {implied:12,} {error(implied, found)}")


if __name__ == "__main__":
    main()
