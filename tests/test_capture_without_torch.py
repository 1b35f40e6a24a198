"""Without torch the package says what is missing, in one line and with its own exit code."""

from __future__ import annotations

import importlib.util

import pytest

import lifecycle_sim as ls
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.sources.capture import launch, params_file
from lifecycle_sim.sources.capture.profiles import DeviceProfile, workspace_of_config
from lifecycle_sim.sources.capture.reduction import reduction_scratch
from tests.cli_support import lifecycle_sim
from tests.conftest import ROOT


def test_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ls.MissingExtraError, match=r"capturing a step needs the package 'torch', .* pip install 'lifecycle-sim\[torch\]'"):
        ls.capture(lambda: None, lambda: None)


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_the_command_ends_with_its_own_code(tmp_path) -> None:
    result = lifecycle_sim("capture", ROOT / "scenarios" / "capture" / "mlp.py", "-o", tmp_path / "step.npz")
    assert result.returncode == Exit.MISSING_PACKAGE
    assert result.stderr.count("\n") == 1


def test_a_profile_with_wrong_figures_lists_them_all() -> None:
    with pytest.raises(ls.InputError, match=r"processors is 0.*\n.*threads is -1.*\n.*workspace is -2"):
        DeviceProfile("mine", 90, 0, -1, workspace=-2)


def test_a_workspace_configuration_is_the_sum_of_its_parts() -> None:
    assert workspace_of_config(":4096:2:16:8") == 8_519_680
    with pytest.raises(ls.InputError, match="is not of the form"):
        workspace_of_config("4096:2")


SM_170, SM_132 = DeviceProfile("a", 120, 170, 1536), DeviceProfile("b", 90, 132, 2048)


@pytest.mark.parametrize(
    ("shape", "strides", "dims", "partial", "profile", "expected"),
    [
        # recorded on a card of 170 processors: the gradient of a norm's weight, at 128 and at 256 tokens
        ((4, 128, 1024), (128 * 1024, 1024, 1), (0, 1), 4, SM_170, (0, 0)),
        ((4, 256, 1024), (256 * 1024, 1024, 1), (0, 1), 4, SM_170, (8_388_608, 32)),
        # recorded with PyTorch's own CUDA code on 132 processors
        ((4, 1024, 1024), (1024 * 1024, 1024, 1), (), 4, SM_132, (2048, 4)),
        ((65_536, 128), (128, 1), (0,), 4, SM_132, (67_108_864, 4)),
        ((512, 768), (768, 1), (1,), 4, SM_132, (0, 0)),
    ],
)
def test_reductions_that_are_split_keep_partial_results(shape, strides, dims, partial, profile, expected) -> None:
    scratch = reduction_scratch(shape, strides, dims, partial, profile)
    assert (scratch.partials, scratch.counters) == expected


def test_recording_and_counting_name_the_extra_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ls.MissingExtraError, match="recording a step needs the package 'torch'"):
        ls.record(None)
    with pytest.raises(ls.MissingExtraError, match="counting parameters needs the package 'torch'"):
        ls.params(None)
    with pytest.raises(ls.MissingExtraError, match="counting parameters needs the package 'torch'"):
        params_file("model.py")
