"""Layers from a file: every problem is told, with its line."""

import pytest

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Basis, Clock
from lifecycle_sim.study.pipeline.schedule_costs import Layer
from lifecycle_sim.study.pipeline.schedule_file import load_layers
from tests.conftest import ROOT

TIMES = "forward = 1\ninput_gradient = 2\nweight_gradient = 3\n"


def test_layers_are_read_with_parameters_and_repeats():
    text = (
        'title = "mine"\ncapacity = "1 KiB"\ncommunication = 2\nresident = "3 B"\n[parameters]\nbatch = 4\n'
        + '[[layer]]\nname = "block {i}"\nrepeat = 2\n'
        + TIMES
        + 'activation = "batch * 5 B"\nstatic = "i * 7 B"\n'
    )
    model = load_layers(text, {"batch": 6})
    assert model.layers == (
        Layer(1, 2, 3, activation=30, static=0, name="block 0"),
        Layer(1, 2, 3, activation=30, static=7, name="block 1"),
    )
    assert (model.title, model.capacity, model.communication, model.resident) == ("mine", 1024, 2, 3)
    assert (model.clock, model.basis) == (Clock.TICKS, Basis.PAYLOAD)


def test_a_file_without_sizes_has_no_bytes():
    model = load_layers(f"[[layer]]\n{TIMES.replace('1', '0')}".replace("2", '"2 ms"').replace("3", '"3 us"'))
    assert (model.clock, model.basis) == (Clock.NANOSECONDS, None)
    assert model.layers == (Layer(0, 2_000_000, 3_000, name="layer 0"),)


@pytest.mark.parametrize("name", ["even", "gpt3"])
def test_shipped_files_are_read_and_say_what_they_show(name):
    path = ROOT / "scenarios" / "schedule" / f"{name}.toml"
    opening = path.read_text().split("\n\n")[0]
    assert "It shows" in opening
    assert "Look for:" in opening
    assert load_layers(path).basis is Basis.PAYLOAD


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title = 'x'\n", "scenario has no [[layer]]: write one for each layer of the model, with its times and sizes"),
        ("[layer]\nforward = 1\n", "layer: write each one as a table of its own, [[layer]]"),
        ("[[layer]]\nforward = 1\n", "line 1, [[layer]] 1: input_gradient is missing"),
        (f"[[layer]]\n{TIMES}actvation = '1 B'\n", "line 5, [[layer]] 1: actvation: unknown key; did you mean 'activation'?"),
        (f"[[layer]]\n{TIMES}activation = 5\n", "line 5, [[layer]] 1: activation: 5 has no unit: write for example '5 B' or '5 MiB'"),
        (f"[[layer]]\n{TIMES}static = '-1 B'\n", "line 5, [[layer]] 1: static: size '-1 B' is negative"),
        (f"[[layer]]\n{TIMES}repeat = 0\n", "line 5, [[layer]] 1: repeat: 0 is too few: give 1 or more"),
        (f"[[layer]]\n{TIMES}repeat = 100001\n", "line 5, [[layer]] 1: repeat: makes 100,001 layers: at most 100,000"),
        (f"tilte = 'x'\n[[layer]]\n{TIMES}", "line 1: tilte: unknown key; did you mean 'title'?"),
        (f"communication = '1 ms'\n[[layer]]\n{TIMES}", "counts ticks, but communication counts seconds"),
        ("a = [\n", "scenario is not TOML"),
    ],
)
def test_problems_are_told(text, problem):
    with pytest.raises(ScenarioError) as told:
        load_layers(text)
    assert any(problem in line for line in told.value.problems), told.value.problems


def test_all_problems_are_told_at_once():
    with pytest.raises(ScenarioError) as told:
        load_layers("[[layer]]\nrepeat = 3\nforward = -1\ninput_gradient = 1\nstatic = 'big'\n", {"batch": 2})
    assert len(told.value.problems) >= 4
