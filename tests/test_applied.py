"""Plans applied to models with torch's checkpoint, and captures of them held against what was told."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

import lifecycle_sim as ls  # noqa: E402
from lifecycle_sim.study.applied import _difference  # noqa: E402
from tests import remat_models as models  # noqa: E402


def adamw(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters())


PROGRAM = {"build_model": partial(models.Gpt4, 0.1, True, 3), "make_batch": models.tokens, "make_optimizer": adamw}
OPTIONS: dict[str, Any] = {"device": "a100-80g", "warmup": 1}


@pytest.fixture(scope="module")
def captured() -> ls.Capture:
    return ls.capture(**PROGRAM, **OPTIONS)


def test_every_plan_of_a_frontier_applied_peaks_where_it_was_told(captured: ls.Capture) -> None:
    frontier = ls.frontier(captured, "blocks.*", solver="branch")
    assert frontier.proven
    assert len(frontier.points) >= 3
    for point in frontier.points:
        found = ls.verify(PROGRAM, point, captured, **OPTIONS)
        assert found.exact, (point.chosen, found.difference)
        assert found.captured.requested == point.peak
        assert (found.modules, len(found.steps)) == (point.chosen, 2)
        assert found.operators > 100


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_what_if_with_a_policy_is_verified_as_it_was_asked(captured: ls.Capture, early_stop: bool) -> None:
    told = ls.what_if(captured, "blocks.[01]", ["aten.addmm.default"], early_stop)
    found = ls.verify(PROGRAM, told, captured, **OPTIONS)
    assert found.exact
    assert found.captured == told.edited
    assert found.trace.settings["capture"]["recomputed"] == {
        "modules": ["blocks.0", "blocks.1"],
        "early_stop": early_stop,
        "preserve_rng": True,
        "saved": ["aten.addmm.default"],
    }


def test_a_capture_of_something_else_is_told_apart(captured: ls.Capture) -> None:
    other = PROGRAM | {"build_model": partial(models.Gpt4, 0.0, True, 3)}
    found = ls.verify(other, ["blocks.0"], captured, **OPTIONS)
    assert not found.exact
    assert found.difference is not None
    assert "not exact" in repr(found)
    assert dict(found.facts())["first difference"] == found.difference
    with pytest.raises(ls.InputError, match="2 steps and verified with 1"):
        ls.verify(PROGRAM, ["blocks.0"], captured, device="a100-80g", warmup=0)


def test_the_first_difference_is_told_in_words() -> None:
    rows = [("start", 0, 0), ("aten.mm.default", 8, 4)]
    assert _difference(rows, rows) is None
    assert (
        _difference(rows, [("start", 0, 0), ("aten.bmm.default", 8, 4)]) == "operator 1 was told as aten.mm.default and is aten.bmm.default"
    )
    assert _difference(rows, [("start", 0, 0), ("aten.mm.default", 9, 4)]) == (
        "operator 1, aten.mm.default: its high-water was told as 8 B and is 9 B"
    )
    assert "level after it was told as 4 B and is 5 B" in str(_difference(rows, [rows[0], ("aten.mm.default", 8, 5)]))
    assert _difference(rows, rows[:1]) == "2 operators were told, and there are 1"


# ── on a real model ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def gradients(model: Any) -> list[Any]:
    torch.manual_seed(1)
    batch = models.tokens()
    model.zero_grad()
    torch.manual_seed(2)
    models.plain_step(model, batch)
    return [parameter.grad.clone() for parameter in model.parameters()]


def calls_of(model: Any, name: str) -> int:
    """How often the forward of the module *name* begins in a step: twice if it is recomputed."""
    counted = []
    handle = model.get_submodule(name).register_forward_pre_hook(lambda *_: counted.append(name))
    gradients(model)
    handle.remove()
    return len(counted)


def test_gradients_are_the_same_and_what_is_chosen_runs_twice(captured: ls.Capture) -> None:
    torch.manual_seed(0)
    model = models.Gpt4(0.1, False, 3)
    names, before = [name for name, _ in model.named_parameters()], gradients(model)
    chosen = ls.plan(captured, "1 GiB", "blocks.*", solver="branch")
    assert ls.apply(model, chosen) is model
    assert calls_of(model, "blocks.0.mlp") == 1, "nothing needs to be recomputed within so much"
    ls.apply(model, ["blocks.[02]"])
    assert [calls_of(model, f"blocks.{number}.mlp") for number in range(3)] == [2, 1, 2]
    assert all(torch.equal(one, other) for one, other in zip(before, gradients(model), strict=True))
    assert [name for name, _ in model.named_parameters()] == names
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert calls_of(other, "blocks.0.mlp") == 2
        ls.apply(other, "blocks.1")
        assert [calls_of(other, f"blocks.{number}.mlp") for number in range(3)] == [1, 2, 1], "what was applied before is taken off"
    assert calls_of(model, "blocks.1.mlp") == 1
    ls.apply(model, ())
    assert not [name for name, module in model.named_modules() if "forward" in vars(module)]


def test_a_forward_of_the_users_own_is_put_back() -> None:
    model = models.Gpt4(0.0, False, 1)
    own = model.blocks[0].forward
    called = []
    model.blocks[0].forward = lambda x: called.append(1) or own(x)
    put = model.blocks[0].forward
    ls.apply(model, "blocks.0")
    gradients(model)
    assert len(called) == 2
    ls.apply(model, ())
    assert model.blocks[0].forward is put


def test_what_cannot_be_applied_is_refused_and_changes_nothing(captured: ls.Capture) -> None:
    model = models.Gpt4(0.0, False, 3)
    nothing = ls.plan(captured, "1 KiB", "blocks.*", solver="branch")
    for plan, why in (
        (["block.0", "blocks.0"], "'block.0' chooses no module of the model: did you mean 'blocks.0'"),
        (["blocks.0@1"], "one call of a module"),
        (nothing, "there is no plan to apply: none was found within 1,024 B"),
        (ls.what_if(captured, "blocks.*", sharding="zero1:2"), "shard zero1:2: only recomputation can be applied"),
        (3, "there is no plan in 3: give an answer of ls.what_if"),
        ([None], "there is no plan in"),
    ):
        with pytest.raises(ls.InputError, match=why):
            ls.apply(model, plan)
    with pytest.raises(ls.InputError, match=r"torch has no operator 'aten\.mn\.default'"):
        ls.apply(model, "blocks.0", saved=["aten.mn.default"])
    with pytest.raises(ls.InputError, match="not to a int"):
        ls.apply(3, "blocks.0")
    assert not [name for name, module in model.named_modules() if "forward" in vars(module)]


def test_a_cell_that_is_called_often_is_checkpointed_in_all_calls() -> None:
    program = {"build_model": models.Recurrent, "make_batch": models.series, "make_optimizer": adamw}
    captured = ls.capture(**program, warmup=0)
    with pytest.raises(ls.InputError, match="1 of 5 calls of cell are recomputed"):
        ls.apply(models.Recurrent(), ls.what_if(captured, "cell@2"))
    assert ls.verify(program, "cell", warmup=0).exact
