"""The exact edit against torch's own checkpoint: the same operators in order, and for each the same high-water and level after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed: captures need it")

from torch.utils.checkpoint import create_selective_checkpoint_contexts  # noqa: E402

import lifecycle_sim as ls  # noqa: E402
from lifecycle_sim.program.remat import chosen_policy, chosen_regions, edit  # noqa: E402
from lifecycle_sim.program.step_graph import Mark, StepGraph  # noqa: E402
from tests import remat_models as models  # noqa: E402

Build = Callable[[], Any]


@pytest.fixture(autouse=True, scope="module")
def cuda() -> Iterator[None]:
    with models.on_cuda():
        yield


@cache
def captured(build: Build, batch: Build, step: models.Step = models.plain_step) -> StepGraph:
    return models.graph_of(build, batch, step)


def must_be_equal(
    build: Build, batch: Build, checkpointed: Collection[str], step: models.Step = models.plain_step, policy: Any = None, **options: Any
) -> None:
    graph = captured(build, batch, step)
    more = {}
    if policy is not None:
        operators = [getattr(getattr(torch.ops.aten, packet), overload) for _, packet, overload in (name.split(".") for name in policy)]
        more["context_fn"] = partial(create_selective_checkpoint_contexts, operators)
    real = models.graph_of(build, batch, step, checkpointed, **options, **more)
    calls = chosen_regions(graph, checkpointed) if checkpointed else ()
    edited = edit(graph, calls, chosen_policy(graph, policy), **options)
    assert edited.rows() == edit(real).rows()


def gpt(dropout: float, fused: bool) -> Build:
    return GPTS[dropout, fused]


GPTS = {(dropout, fused): partial(models.Gpt4, dropout, fused) for dropout in (0.0, 0.1) for fused in (False, True)}
BLOCKS = [f"blocks.{number}" for number in range(4)]
SUBSETS = [subset for size in range(5) for subset in itertools.combinations(BLOCKS, size)]


@pytest.mark.parametrize("fused", [False, True], ids=["eager", "sdpa"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("subset", SUBSETS, ids=lambda subset: "".join(name[-1] for name in subset) or "none")
def test_all_subsets_of_blocks(subset: tuple[str, ...], dropout: float, fused: bool) -> None:
    must_be_equal(gpt(dropout, fused), models.tokens, subset)


PARTS = [f"blocks.{number}{part}" for number in range(4) for part in ("", ".before", ".attention", ".attention.qkv", ".mlp", ".mlp.down")]


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sets(st.sampled_from([*PARTS, "token", "norm", "head"]), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_random_sets_of_modules_one_in_another_or_not(modules: set[str], fused: bool, early_stop: bool) -> None:
    must_be_equal(gpt(0.1, fused), models.tokens, sorted(modules), early_stop=early_stop)


@pytest.mark.parametrize("checkpointed", [["layers.0"], ["layers.1", "layers.2"], ["layers", "layers.1"], ["layers.0.first", "layers.2"]])
def test_batch_norm_and_relu_in_place(checkpointed: list[str]) -> None:
    must_be_equal(models.ResNet5, models.images, checkpointed)


@pytest.mark.parametrize(
    "checkpointed", [["blocks.0"], ["blocks.1", "blocks.2"], ["blocks.0", "blocks.1", "blocks.2"], ["blocks.2.linear"]]
)
def test_shared_boundary_tensors_by_place_and_by_name_and_what_a_context_keeps(checkpointed: list[str]) -> None:
    must_be_equal(models.Shared, models.vectors, checkpointed)


@pytest.mark.parametrize("step", [models.plain_step, models.autocast_step], ids=lambda step: step.__name__)
def test_a_cell_for_all_steps(step: models.Step) -> None:
    must_be_equal(models.Recurrent, models.series, ["cell"], step)


STEPS = [models.autocast_step, models.frozen_step, models.accumulating_step, models.both_then_backward_step, models.retained_step]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_steps_as_people_write_them(step: models.Step) -> None:
    must_be_equal(gpt(0.0, False), models.tokens, ["blocks.0", "blocks.2", "blocks.2.mlp", "blocks.3.mlp"], step)


@pytest.mark.parametrize("checkpointed", [BLOCKS, ["blocks.1", "blocks.1.mlp", "blocks.2.attention"]], ids=["blocks", "nested"])
def test_without_early_stop(checkpointed: list[str]) -> None:
    must_be_equal(gpt(0.1, False), models.tokens, checkpointed, early_stop=False)


POLICIES = [
    ("aten.mm.default", "aten.addmm.default"),
    ("aten.bmm.default",),
    ("aten._softmax.default", "aten.gelu.default"),
    ("aten.native_dropout.default",),
    ("aten.native_layer_norm.default", "aten.addmm.default", "aten.bmm.default"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: "+".join(name.split(".")[1] for name in policy))
def test_selective_policies(policy: tuple[str, ...]) -> None:
    early_stop = len(policy) != 2  # what an early stop leaves of them is held on
    known = {each.name for each in captured(gpt(0.1, False), models.tokens).operators}
    must_be_equal(
        gpt(0.1, False), models.tokens, ["blocks.0", "blocks.2"], policy=[name for name in policy if name in known], early_stop=early_stop
    )


@pytest.mark.parametrize(
    ("build", "batch", "modules", "policy", "why"),
    [
        (
            models.ResNet5,
            models.images,
            ["layers.0"],
            ["aten.native_batch_norm.default"],
            "is changed in place later, which torch does not",
        ),
        (
            models.ResNet5,
            models.images,
            ["layers.0"],
            ["aten.relu_.default"],
            "the policy saves aten.relu_.default, which changes its input",
        ),
        (models.Shared, models.vectors, ["blocks.0"], ["aten.view.default"], "a view of what is computed again"),
        (
            models.Shared,
            models.vectors,
            ["blocks.0", "blocks.0.linear"],
            ["aten.addmm.default"],
            "a policy in a checkpointed call that is in",
        ),
    ],
)
def test_policies_that_torch_or_the_answer_does_not_allow(
    build: Build, batch: Build, modules: list[str], policy: list[str], why: str
) -> None:
    graph = captured(build, batch)
    with pytest.raises(ls.InputError, match=why):
        edit(graph, chosen_regions(graph, modules), chosen_policy(graph, policy))


# ── what keeps a step as it was ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_an_edit_the_events_are_those_of_the_trace() -> None:
    graph = captured(gpt(0.1, False), models.tokens)
    edited = edit(graph)
    events = [event.value if event.happens == 2 else ~event.value for event in edited.events if event.happens >= 2]
    assert events == list(graph.events)
    assert not edited.again


def test_natural_lifetimes_end_before_holds_do() -> None:
    graph = captured(gpt(0.0, False), models.tokens)
    freed = {value: place for place, (kind, value) in enumerate(graph.marks()) if kind == Mark.FREE}
    first = next(place for place, (kind, _) in enumerate(graph.marks()) if kind == Mark.UNPACK)
    saved = {hold.storage for hold in graph.holds if not hold.lasting} & freed.keys()
    assert sum(freed[storage] < first for storage in saved) > len(saved) / 2


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("build", "batch", "step", "checkpointed", "why"),
    [
        (models.InPlace, models.vectors, models.plain_step, "first", "first cannot be recomputed: it changes its input in place"),
        (models.InPlace, models.vectors, models.plain_step, "second", "second cannot be recomputed: something after it changes its input"),
        (
            models.Recurrent,
            models.series,
            models.backward_under_autocast_step,
            "cell",
            "cell cannot be recomputed: its backward pass runs under",
        ),
        (models.InPlace, models.vectors, models.second_order_step, "second", "step 1: autograd saves tensors in a backward pass"),
        (models.Counting, models.vectors, models.plain_step, "part", "part cannot be recomputed: autograd asks twice for a tensor"),
    ],
)
def test_what_would_not_be_the_same_is_refused(build: Build, batch: Build, step: models.Step, checkpointed: str, why: str) -> None:
    graph = captured(build, batch, step)
    with pytest.raises(ls.InputError, match=why):
        edit(graph, chosen_regions(graph, [checkpointed]))


def test_what_torch_itself_fails_on_is_noted() -> None:
    graph = captured(models.SelfAttention, models.vectors)
    (note,) = edit(graph, chosen_regions(graph, ["attention"])).notes
    assert note.startswith("attention is called with one storage in several places")
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        models.graph_of(models.SelfAttention, models.vectors, checkpointed=["attention"])


def test_buffers_that_change_twice_are_noted() -> None:
    graph = captured(models.ResNet5, models.images)
    notes = edit(graph, chosen_regions(graph, ["layers.0.norm"])).notes
    assert notes == ("layers.0.norm: aten.add_.Tensor changes a buffer in place, and does so a second time when it is computed again",)


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        (["block.0"], "chooses no module that was called: did you mean 'blocks.0'"),
        (["blocks"], "chooses no module that was called"),
        (["blocks.0@1"], "chooses no call: blocks.0 is called 1 times"),
        (["blocks.0@x"], "after @ comes the number of a call"),
    ],
)
def test_patterns_that_choose_nothing(patterns: list[str], problem: str) -> None:
    with pytest.raises(ls.InputError, match=problem):
        chosen_regions(captured(gpt(0.0, False), models.tokens), patterns)


def test_patterns() -> None:
    graph = captured(gpt(0.0, False), models.tokens)

    def chosen(*patterns: str) -> list[str]:
        return sorted(graph.calls[number].module for number in chosen_regions(graph, patterns))

    assert chosen("blocks.*") == BLOCKS
    assert chosen("blocks.[1-2]", "head") == ["blocks.1", "blocks.2", "head"]
    assert chosen("blocks.[!0].mlp") == ["blocks.1.mlp", "blocks.2.mlp", "blocks.3.mlp"]
    assert len(chosen("blocks.0**")) == 9
    assert chosen("blocks.?.after") == [f"{block}.after" for block in BLOCKS]


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (["aten.bmm"], r"it is an overload that is meant, such as 'aten.bmm.default'"),
        (["aten.bmn.default"], r"did you mean 'aten.bmm.default'"),
        ({"aten.bmm.default": "save"}, "policy 'save' of aten.bmm.default is not known"),
        (lambda _: "keep", "policy 'keep' is not known"),
    ],
)
def test_policies_that_say_nothing(policy: Any, problem: str) -> None:
    with pytest.raises(ls.InputError, match=problem):
        chosen_policy(captured(gpt(0.0, False), models.tokens), policy)


# ── each rule is needed ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _without_boundary(run: Any, frame: Any, storage: int) -> None:
    """Nothing holds the inputs."""
    frame.inputs.append((storage, None))


def _each_on_its_own(run: Any, frame: Any, storage: int) -> None:
    """Each call pays for its inputs, whoever else holds them."""
    frame.inputs.append((storage, None))
    if run.account.is_live(storage):
        run.account.hold(storage)
        frame.held += [storage, run.account.copy(storage)]


def _kept_after_apply(run: Any, hold: int) -> None:
    """What was computed again stays, as an ordinary saved tensor does, until it is released."""
    if hold not in run._owner:
        run._let_go(hold)


def _released_late(run: Any, hold: int) -> None:
    for copy in run._taken.pop(hold, []):
        run.account.drop(copy)
    frame = run._owner.get(hold)
    if frame is None:
        run._let_go(hold)
    else:
        run._released_in(frame, hold)


RULES = {
    "boundary": ({"_hold_input": _without_boundary}, {}),
    "shared boundary tensors once": ({"_hold_input": _each_on_its_own}, {}),
    "end of apply": ({"_applied": _kept_after_apply, "_release": _released_late}, {}),
    "early stop": ({}, {"early_stop": False}),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_the_answer_is_wrong(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(models.Shared, models.vectors, ["blocks.*"]), (gpt(0.0, False), models.tokens, ["blocks.0", "blocks.1", "blocks.2"])]
    replaced, options = RULES[rule]
    wrong = []
    for build, batch, patterns in cases:
        graph = captured(build, batch)
        calls = chosen_regions(graph, patterns)
        right = edit(graph, calls).rows()
        with monkeypatch.context() as without:
            for name, function in replaced.items():
                without.setattr(f"lifecycle_sim.program.remat.editing.Run.{name}", function)
            try:
                wrong.append(edit(graph, calls, **options).rows() != right)
            except ls.InputError:  # the input that nobody held is gone
                wrong.append(True)
    assert wrong[-1] or rule == "shared boundary tensors once"
    assert any(wrong)
