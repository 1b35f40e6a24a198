"""A captured model cut into stages: bytes and FLOPs of its layers, worked out by hand."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis, Clock
from lifecycle_sim.study.pipeline.schedule_capture import captured_layers
from lifecycle_sim.study.pipeline.schedule_orders import schedule
from lifecycle_sim.study.pipeline.schedule_result import run_schedule

WIDTH, BATCH = 256, 1024
ACTIVATION = BATCH * WIDTH * 4
"""Bytes of one activation in float32."""
WEIGHTS = (WIDTH * WIDTH + WIDTH) * 4
"""Bytes of a layer's weight and bias."""
PROGRAM = f"""
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear({WIDTH}, {WIDTH}), nn.ReLU()) for _ in range(6))
        self.head = nn.Linear({WIDTH}, {WIDTH})

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def build_model():
    return Net()

def make_batch(batch={BATCH}):
    return torch.randn(batch, {WIDTH})

def make_optimizer(model):
    return torch.optim.AdamW(model.parameters())

def step(model, optimizer, given):
    model(given).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("model") / "net.py"
    path.write_text(PROGRAM)
    return ls.capture_file(str(path), None, {}, device="h100", warmup=1, steps=1)


def test_layers_have_the_bytes_and_flops_of_their_operators(captured):
    """A block keeps what its ReLU gives, which its own backward and the next block's weights read."""
    model = captured_layers(captured)
    assert (model.basis, model.clock, model.title, model.capacity) == (
        Basis.REQUESTED,
        Clock.TICKS,
        "blocks.0 … blocks.5",
        captured.profile.capacity,
    )
    assert len(model.layers) == 6
    flops = -(-2 * BATCH * WIDTH * WIDTH // 10**6)
    for layer in model.layers[1:5]:
        assert (layer.forward, layer.input_gradient, layer.weight_gradient) == (flops, flops, flops)
        assert (layer.activation, layer.weight_input, layer.input) == (0, ACTIVATION, ACTIVATION)
        assert layer.output_gradient == ACTIVATION  # of what the ReLU was given
        assert layer.forward_temporary == ACTIVATION  # what the ReLU was given
        assert layer.static == 4 * WEIGHTS  # parameters, gradients, and two states of AdamW
        assert layer.weight_temporary == WIDTH * WIDTH * 4
    first, last = model.layers[0], model.layers[-1]
    assert (first.input_gradient, first.weight_gradient) == (0, flops)  # nobody asks for the gradient of the batch
    assert (first.input, first.static) == (ACTIVATION, 4 * WEIGHTS)
    assert last.static == 8 * WEIGHTS  # the head goes with it
    assert last.forward == -(-2 * 2 * BATCH * WIDTH * WIDTH // 10**6)


def test_one_stage_takes_what_the_captured_step_took_and_what_is_assumed_on_top(captured):
    model = captured_layers(captured)
    run = run_schedule(schedule("gpipe", 1, 1), model)
    replayed = ls.replay_device(captured.trace)
    step = captured.steps[-1]
    backward = [span for span in replayed.recorded.spans if span.kind == "phase" and span.name == "backward"][-1]
    measured = int(replayed.timeline.levels[step.start : backward.stop].max())
    gradients = 7 * WEIGHTS  # counted from the first micro-batch on
    copy, added = ACTIVATION, WIDTH * WIDTH * 4  # the stage's own input, and a gradient that is added to another
    assert measured <= run.peak <= measured + gradients + copy + added


def test_times_are_seconds_where_a_speed_is_given(captured):
    model = captured_layers(captured, tflops=1)
    assert model.clock is Clock.NANOSECONDS
    assert model.layers[1].forward == -(-2 * BATCH * WIDTH * WIDTH // 1000)
    with pytest.raises(InputError, match="0 TFLOP/s: give 1 or more"):
        captured_layers(captured, tflops=0)


def test_assumptions_are_told(captured):
    told = " ".join(captured_layers(captured).costs(3).assumptions)
    for part in ("cut at blocks", "its own copy", "gradients and optimizer states", "workspaces", "FLOPs", "3 stages of 2 each"):
        assert part in told


def test_a_cut_that_is_not_there_is_refused(captured):
    with pytest.raises(InputError, match=r"the model has no layers layers\.0, layers\.1 …: such modules are blocks"):
        captured_layers(captured, cut="layers")
    with pytest.raises(InputError, match="do not make 7 stages"):
        captured_layers(captured).costs(7)


def test_a_step_without_backward_is_refused(captured):
    forward_alone = replace(captured, operators=tuple(op for op in captured.operators if op.phase != "backward"))
    with pytest.raises(InputError, match="the captured step has no backward: a schedule needs a training step"):
        captured_layers(forward_alone)
    one = replace(captured, operators=tuple(replace(op, module="net") for op in captured.operators))
    with pytest.raises(InputError, match="the model has no list of layers"):
        captured_layers(one)


def test_the_command_cuts_the_captured_model(captured, monkeypatch):
    asked = []

    def capture_file(path, function, parameters, **settings):
        asked.append((path, function, parameters, settings["device"], settings["autocast"]))
        return captured

    monkeypatch.setattr("lifecycle_sim.sources.capture.capture_file", capture_file)
    arguments = ["schedule", "1f1b", "--stages", "2", "--microbatches", "4", "--model", "net.py:small", "--device", "l4", "--cut", "blocks"]
    result = CliRunner(catch_exceptions=False).invoke(main, [*arguments, "--batch", "64", "--autocast", "bf16"])
    assert result.exit_code == 0, result.output
    assert asked == [("net.py", "small", {"batch": 64}, "l4", "bf16")]
    peak = run_schedule(schedule("1f1b", 2, 4), captured_layers(captured)).peak
    assert f"{peak:,} B" in result.stdout
    assert "requested, simulated, on rank" in result.stdout
    refused = CliRunner().invoke(main, [*arguments, "--largest"])
    assert [parameters for _, _, parameters, *_ in asked[2:]] == [{"batch": 1}, {"batch": 2}]
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "a micro-batch of 2 takes as many bytes as one of 1" in refused.stderr
