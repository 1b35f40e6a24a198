"""Recomputed ranges of operator programs, by hand and against a second way of computing peaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.program import Program, run
from lifecycle_sim.program.graph import Operator, Storage
from lifecycle_sim.program.recompute import ranges_of, recomputed
from lifecycle_sim.study.recompute_scenario import what_if_program

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
MIB = 2**20


def chain(layers: int, save: int = 4, width: int = 1) -> Program:
    """Layers that keep *save* bytes each for backward beside their input of *width* bytes."""
    storages = [Storage(f"x{i}", width) for i in range(layers + 1)] + [Storage(f"d{i}", save) for i in range(layers)]
    storages += [Storage(f"g{i}", width) for i in range(layers + 1)]
    forward = [Operator("load", phase="forward", writes=("x0",))]
    forward += [Operator(f"f{i}", 1, phase="forward", reads=(f"x{i}",), writes=(f"d{i}", f"x{i + 1}")) for i in range(layers)]
    loss = [Operator("loss", phase="forward", reads=(f"x{layers}",), writes=(f"g{layers}",))]
    backward = [
        Operator(f"b{i}", 2, phase="backward", reads=(f"d{i}", f"x{i}", f"g{i + 1}"), writes=(f"g{i}",)) for i in reversed(range(layers))
    ]
    return Program(tuple(storages), operators=(*forward, *loss, *backward))


def peak(program: Program) -> int:
    return ls.replay_device(run(program)).peak.size


def held(layers: int, chosen: set[int], save: int, width: int) -> int:
    """The peak of a chain by counting: what each backward operator finds, and each forward one."""
    most = 0
    kept = [i for i in range(layers) if i not in chosen]
    for i in range(layers):  # forward: x0 .. x{i + 1}, data kept so far, and its own
        most = max(most, (i + 2) * width + save * (len([k for k in kept if k < i]) + 1))
    for i in reversed(range(layers)):
        data = save * (len([k for k in kept if k <= i]) + (i in chosen))
        again = width if i in chosen else 0  # the second run makes the output too
        most = max(most, (i + 1) * width + width + data + max(width, again))
    return most


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.sets(st.integers(0, 6)), st.integers(1, 9), st.integers(1, 9))
def test_single_layers_of_a_chain(layers: int, wanted: set[int], save: int, width: int) -> None:
    chosen = {i for i in wanted if i < layers}
    program = chain(layers, save, width)
    edited = recomputed(program, [f"f{i}" for i in sorted(chosen)])
    assert peak(edited) == held(layers, chosen, save, width)
    assert sum(operator.duration for operator in edited.operators) == 3 * layers + len(chosen)


def test_the_shipped_pair_is_one_edit() -> None:
    kept, again = (ls.load_scenario(SCENARIOS / f"blocks_{name}.toml") for name in ("kept", "recomputed"))
    found = what_if_program(kept, ["block*"])
    assert (found.base.peak, found.edited.peak) == (944 * MIB, 304 * MIB)
    assert (found.base.operators, found.edited.operators) == (38, 50)
    assert (found.base.makespan, found.edited.makespan) == (39_800_000, 47_000_000)
    assert found.program.operators == again.operators
    assert peak(again) == found.edited.peak
    more = [what_if_program(ls.load_scenario(SCENARIOS / "blocks_kept.toml", {"blocks": count}), ["block*"]) for count in (6, 7)]
    assert [b.peak - a.peak for a, b in ((more[0].base, more[1].base), (more[0].edited, more[1].edited))] == [144 * MIB, 16 * MIB]


def test_a_range_by_its_ends_stops_early_and_keeps_its_output() -> None:
    program = chain(4)
    (found,) = ranges_of(program, ["f1 .. f2"])
    assert [program.operators[place].name for place in found.again] == ["f1", "f2"]
    assert program.operators[found.before].name == "b2"
    assert found.saved == ("d2", "x2", "d1")
    edited = recomputed(program, ["f1 .. f2"])
    assert [operator.name for operator in edited.operators][5:10] == ["loss", "b3", "f1 again", "f2 again", "b2"]
    again = next(operator for operator in edited.operators if operator.name == "f2 again")
    assert (again.reads, again.writes, again.phase) == (("x2 again",), ("d2 again", "x3 again"), "backward")
    b3 = next(operator for operator in edited.operators if operator.name == "b3")
    assert "x3" in b3.reads  # the output of the range, which f3 reads: kept


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        (["g*"], "'g\\*' chooses no forward operator"),
        (["f1 .. f9"], "there is no operator 'f9'"),
        (["f2 .. f1"], "'f2' runs after 'f1'"),
        (["f1 .. b1"], "is in it and has not the phase forward"),
        (["f1", "f0 .. f1"], "is in an earlier range already"),
        (["loss"], "no backward operator reads what 'loss'"),
    ],
)
def test_ranges_refused(ranges: list[str], says: str) -> None:
    program = chain(3)
    if ranges == ["loss"]:
        program = Program(program.storages, operators=tuple(o for o in program.operators if o.phase == "forward"))
    with pytest.raises(ls.InputError, match=says):
        recomputed(program, ranges)


def test_an_input_that_is_changed_is_refused() -> None:
    program = chain(3)
    spoil = Operator("spoil", phase="forward", writes=("x1",))
    operators = (*program.operators[:3], spoil, *program.operators[3:])
    with pytest.raises(ls.InputError, match="'spoil' changes 'x1', so that the range could not be computed again"):
        recomputed(Program(program.storages, operators=operators), ["f1"])


def invoke(*arguments: Any) -> Any:
    return CliRunner(catch_exceptions=False).invoke(main, ["whatif", *map(str, arguments)])


def test_the_command_sets_both_costs_side_by_side() -> None:
    made = invoke(SCENARIOS / "blocks_kept.toml", "--checkpoint", "block*", "--capacity", "512 MiB")
    assert made.exit_code == 0, made.output
    assert "989,855,744 B (944 MiB)   318,767,104 B (304 MiB)" in made.stdout
    assert invoke(SCENARIOS / "blocks_kept.toml", "--checkpoint", "block[0-1]", "--capacity", "512 MiB").exit_code == 1
    assert invoke(SCENARIOS / "blocks_kept.toml", "--checkpoint", "blok*").exit_code == 3
    assert invoke(SCENARIOS / "blocks_kept.toml", "--checkpoint", "block*", "--shard", "zero1:2").exit_code == 2


def test_a_wrong_range_in_a_scenario_names_its_line(tmp_path: Path) -> None:
    text = (SCENARIOS / "blocks_recomputed.toml").read_text(encoding="utf-8").replace('["block*"]', '["blocks*", "embed .. los"]')
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    line = next(number for number, row in enumerate(text.splitlines(), start=1) if row.startswith("recompute"))
    with pytest.raises(ls.ScenarioError) as caught:
        ls.load_scenario(path)
    assert len(caught.value.problems) == 2
    assert all(problem.startswith(f"line {line}: recompute: ") for problem in caught.value.problems)
