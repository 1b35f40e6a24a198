"""Sharding, offload and plain SGD as edits of a capture, against captures of programs that really do them by hand."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from lifecycle_sim.program.edits.offload import Offload  # noqa: E402
from lifecycle_sim.program.edits.sharding import Sharding  # noqa: E402
from lifecycle_sim.program.engine_copies import Link  # noqa: E402
from tests import remat_models as models  # noqa: E402

OPTIONS: dict[str, Any] = {"device": "a100-80g", "warmup": 1}


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters())


class Layers(torch.nn.Module):
    """Blocks of two linear layers: nothing goes around a block."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 96)) for _ in range(4)
        )

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def rows() -> Any:
    return (torch.randn(7, 96),)


def gpt() -> Any:
    return models.Gpt4(0.1, True, blocks=2)


@pytest.fixture(scope="module")
def layers() -> ls.Capture:
    return ls.capture(Layers, rows, adamw, **OPTIONS)


@pytest.fixture(scope="module")
def small_gpt() -> ls.Capture:
    return ls.capture(gpt, models.tokens, adamw, **OPTIONS)


def part_of(parameter: Any, ranks: int) -> int:
    return int(-(-parameter.numel() // ranks))


class Rank:
    """One rank's training by hand: it keeps parts, and makes the whole where it has to. What the others send is not there to see."""

    def __init__(self, stage: int, ranks: int, model: Any) -> None:
        self.stage, self.ranks, self.model = stage, ranks, model
        self.parts = {}
        for parameter in model.parameters():
            size = part_of(parameter, ranks)
            own = torch.empty(size) if stage == 3 else parameter.detach().flatten()[:size]
            self.parts[parameter] = torch.nn.Parameter(own)
        self.optimizer = torch.optim.AdamW(self.parts.values())
        if stage >= 2:
            for parameter in self.parts:
                parameter.register_post_accumulate_grad_hook(self.scatter)
        if stage == 3:
            self.whole = {parameter: parameter.untyped_storage().nbytes() for parameter in self.parts}
            self.units = list(model.layers)
            for place, unit in enumerate(self.units):
                self.let_go(unit)
                unit.register_forward_pre_hook(lambda unit, _: self.gather(unit))
                unit.register_forward_hook(partial(self.after, place))

    def scatter(self, parameter: Any) -> None:
        part = parameter.grad.new_empty(part_of(parameter, self.ranks))
        parameter.grad = None
        self.parts[parameter].grad = part

    def gather(self, unit: Any) -> None:
        for parameter in unit.parameters():
            parameter.untyped_storage().resize_(self.whole[parameter])

    def let_go(self, unit: Any) -> None:
        for parameter in unit.parameters():
            parameter.untyped_storage().resize_(0)

    def after(self, place: int, unit: Any, _inputs: Any, output: Any) -> None:
        self.let_go(unit)

        def turn(_gradient: Any) -> None:
            if place + 1 < len(self.units):
                self.let_go(self.units[place + 1])
            self.gather(unit)

        output.register_hook(turn)

    def step(self, model: Any, _: Any, batch: Any) -> None:
        loss = model(*batch)
        loss.backward()
        if self.stage == 3:
            self.let_go(self.units[0])
        if self.stage == 1:
            for parameter, part in self.parts.items():
                part.grad = parameter.grad.flatten()[: part.numel()]
        self.optimizer.step()
        for parameter, part in self.parts.items():
            parameter.grad = part.grad = None


def by_hand(stage: int, ranks: int, build: Any, batch: Any) -> ls.Capture:
    def make(model: Any) -> Any:
        model.rank = [Rank(stage, ranks, model)]
        return model.rank[0].optimizer

    return ls.capture(build, batch, make, lambda model, _, given: model.rank[0].step(model, _, given), operators=False, **OPTIONS)


def peaks(trace: ls.Trace) -> Any:
    return [(step.requested, step.requested_after) for step in ls.predict(trace).steps]


@pytest.mark.parametrize(("stage", "ranks"), [(1, 5), (2, 2), (3, 2), (3, 5)])
def test_shards_of_layers(stage: int, ranks: int, layers: ls.Capture) -> None:
    found = ls.what_if(layers, sharding=f"zero{stage}:{ranks}")
    assert peaks(found.trace) == peaks(by_hand(stage, ranks, Layers, rows).trace)
    assert not ls.check(found.trace)


def test_shards_of_a_gpt_with_a_tied_head(small_gpt: ls.Capture) -> None:
    found = ls.what_if(small_gpt, sharding=Sharding(2, 4))
    assert peaks(found.trace) == peaks(by_hand(2, 4, gpt, models.tokens).trace)


def test_what_ranks_exchange(layers: ls.Capture) -> None:
    """Each part but the own one comes once a gather: after the update, or twice a step if the parameters themselves are divided."""
    sizes = [row.size for row in layers.parameters]
    missing = sum(size - part_of(torch.empty(size // 4), 5) * 4 for size in sizes)
    told = {stage: ls.what_if(layers, sharding=f"zero{stage}:5").communication for stage in (1, 2, 3)}
    assert [(each.gathers, each.gathered) for each in told.values() if each] == [(16, missing), (16, missing), (32, 2 * missing)]
    assert [(each.reductions, each.reduced) for each in told.values() if each] == [(16, missing)] * 3
    one = ls.what_if(layers, sharding="zero1:1")
    assert one.edited == one.base


class Host:
    """Sends what autograd saves to the host and back, each storage once, and waits for it."""

    def __init__(self, least: int) -> None:
        self.least, self.kept = least, {}

    class Record:
        count, back = 0, None

    class Packed:
        def __init__(self, record: Any, tensor: Any) -> None:
            self.record, self.dtype = record, tensor.dtype
            self.view = (tensor.size(), tensor.stride(), tensor.storage_offset())
            self.size = tensor.untyped_storage().nbytes()

    def step(self, model: Any, optimizer: Any, batch: Any) -> None:
        stays = {id(tensor.untyped_storage()) for tensor in (*model.parameters(), *model.buffers(), *batch)}

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if id(storage) in stays or storage.nbytes() < self.least:
                return tensor
            if id(storage) not in self.kept:
                self.kept[id(storage)] = Host.Record()
                weakref.finalize(storage, self.kept.pop, id(storage))
            record = self.kept[id(storage)]
            record.count += 1
            packed = Host.Packed(record, tensor)
            weakref.finalize(packed, self.released, record)
            return packed

        with torch.autograd.graph.saved_tensors_hooks(pack, self.unpack):
            loss = model(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    @staticmethod
    def released(record: Any) -> None:
        record.count -= 1
        if not record.count:
            record.back = None

    @staticmethod
    def unpack(packed: Any) -> Any:
        if not isinstance(packed, Host.Packed):
            return packed
        if packed.record.back is None:
            packed.record.back = torch.empty(packed.size, dtype=torch.uint8)
        return packed.record.back.view(packed.dtype).as_strided(*packed.view)


@pytest.mark.parametrize(  # from 16 bytes on: the seeds of attention lie on the host, which a program by hand cannot tell
    ("build", "batch", "least"), [(Layers, rows, 3000), (gpt, models.tokens, 16)], ids=["layers", "gpt"]
)
def test_saved_tensors_on_the_host(build: Any, batch: Any, least: int, layers: ls.Capture, small_gpt: ls.Capture) -> None:
    made = layers if build is Layers else small_gpt
    found = ls.what_if(made, offloaded=Offload(("saved",), Link(10**9, overlap=False), least))
    real = ls.capture(build, batch, adamw, Host(least).step, operators=False, **OPTIONS)
    assert peaks(found.trace) == peaks(real.trace)
    assert found.transfers is not None
    assert found.transfers.sent == found.transfers.fetched == found.transfers.host_peak > 0
    assert found.transfers.exposed == found.transfers.makespan - found.transfers.compute > 0


def test_a_link_without_limits_hides_all_and_holds_what_waiting_holds(small_gpt: ls.Capture) -> None:
    asked = {"least": 1, "what": ("saved",)}
    waiting = ls.what_if(small_gpt, offloaded=Offload(link=Link(10**15, overlap=False), **asked))
    fast = ls.what_if(small_gpt, offloaded=Offload(link=Link(10**15, ahead=0), **asked))
    assert fast.transfers is not None
    assert fast.transfers.exposed <= 2 * fast.transfers.tensors
    assert fast.edited.requested <= small_gpt_peak(small_gpt)
    assert waiting.edited.requested <= fast.edited.requested


def small_gpt_peak(made: ls.Capture) -> int:
    return ls.predict(made.trace).steps[-1].requested


def test_state_on_the_host(layers: ls.Capture) -> None:
    """Between the steps it takes nothing on the device; in the optimizer it is all there."""
    found = ls.what_if(layers, offloaded=Offload(("optimizer",), Link(10**12), 1))
    state = sum(2 * row.size for row in layers.parameters)
    before, after = (ls.predict(trace).steps for trace in (layers.trace, found.trace))
    assert [step.requested_after for step in after] == [step.requested_after - state for step in before]
    assert found.transfers is not None
    assert found.transfers.fetched == found.transfers.sent == state
    assert found.transfers.host_peak <= state
    assert not ls.check(found.trace)


def test_plain_sgd_in_place_of_adamw(small_gpt: ls.Capture) -> None:
    real = ls.capture(gpt, models.tokens, lambda model: torch.optim.SGD(model.parameters()), operators=False, **OPTIONS)
    assert ls.predict(ls.what_if(small_gpt, optimizer="sgd").trace).steps == ls.predict(real.trace).steps


def test_edits_are_joined(small_gpt: ls.Capture) -> None:
    checkpointed = ls.what_if(small_gpt, "blocks.*")
    joined = ls.what_if(small_gpt, "blocks.*", optimizer="sgd", sharding="zero2:2")
    assert joined.extra == checkpointed.extra
    assert joined.edited.requested < checkpointed.edited.requested
    assert joined.edited_by == ("optimizer sgd", "shard zero2:2")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"optimizer": "adamw-fused"}, "a capture tells what its own optimizer did"),
        ({"sharding": "zero4:8"}, "shard 'zero4:8' is not known"),
        ({"sharding": "zero3:0"}, "over 0 ranks is not known"),
        ({"checkpoint": "blocks.*", "offloaded": Offload(("saved",), Link(10**9))}, "not both"),
    ],
)
def test_edits_refused(asked: dict[str, Any], says: str, small_gpt: ls.Capture) -> None:
    with pytest.raises(ls.InputError, match=says):
        ls.what_if(small_gpt, **asked)


def test_gradients_that_add_up_are_not_divided() -> None:
    made = ls.capture(Layers, rows, adamw, variant=ls.Variant(accumulate=2), **OPTIONS)
    with pytest.raises(ls.InputError, match="several backward passes"):
        ls.what_if(made, sharding="zero2:2")
    assert ls.what_if(made, sharding="zero1:2").saves > 0
