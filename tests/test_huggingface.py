"""Models of transformers made from a config: held against the same models under PyTorch's own CUDA code, and a driver that does nothing."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: captures need it")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")

import lifecycle_sim as ls  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

EXAMPLE = str(ROOT / "scenarios" / "capture" / "huggingface.py")
SIZES = {"batch": 2, "seq": 128, "layers": 2, "width": 256}
RECORDED_WITH = ("5", "24")
RECORDED = {
    # requested, allocated and reserved peak of the third step, and requested after it: PyTorch 2.14.1's CUDA code, transformers 5.24.0,
    # under a driver that does nothing, without cuDNN
    "gpt2": (413_549_576, 419_344_384, 442_499_072, 243_604_480),
    "llama": (284_222_136, 289_337_856, 358_612_992, 178_003_584),
    "bert": (286_398_144, 287_616_512, 293_601_280, 182_581_944),
    "t5": (362_819_592, 366_752_768, 375_390_208, 228_763_648),
}
ATTENTION = {"gpt2": "efficient_backward", "llama": "flash_backward", "bert": "efficient_backward", "t5": "efficient_backward"}


@pytest.mark.parametrize("family", RECORDED)
def test_a_model_from_a_config_is_predicted(family: str) -> None:
    captured = ls.capture_file(EXAMPLE, family, SIZES)
    used = {use.term.name for use in captured.terms if use.count}
    assert ATTENTION[family] in used
    step = ls.predict(captured.trace).steps[-1]
    if tuple(transformers.__version__.split(".")[:2]) != RECORDED_WITH:
        pytest.skip(f"recorded with transformers {'.'.join(RECORDED_WITH)}, not {transformers.__version__}")
    assert (step.requested, step.allocated, step.reserved, step.requested_after) == RECORDED[family]
