"""The probes that ship, captured from a real job's program: against its recordings, and each left out over lengths and batches."""

from __future__ import annotations

from pathlib import Path

import pytest

import lifecycle_sim as ls
from lifecycle_sim.study.batch import fit, read_probes, residuals
from lifecycle_sim.study.batch.curve import Shape, curve
from lifecycle_sim.study.batch.measured import probe_of_trace
from tests.conftest import ROOT

PROBES = read_probes((ROOT / "scenarios" / "batch" / "reference_probes.csv").read_text(encoding="utf-8"))
PEAKS = {(probe.batch, probe.seq): probe.peak for probe in PROBES}
MADE_BEFORE = 2 * 5 * 4 * 8
"""Bytes a token of what the recorded program had made besides: inputs and targets of five more steps, four sequences each, of int64."""


@pytest.mark.parametrize("seq", [128, 256])
def test_the_captured_peaks_are_those_of_the_recordings(shared: Path, seq: int):
    recorded = probe_of_trace(ls.read_trace(shared / f"data/snapshots/lm_medium_ctx{seq}_train.pickle"), 4, seq)
    assert recorded.peak - PEAKS[4, seq] == MADE_BEFORE * seq


def test_the_peak_changes_its_phase_between_the_lengths():
    assert {probe.seq: probe.phase for probe in PROBES if probe.batch == 4} == {128: "optimizer", 256: "forward", 384: "forward"}


def test_each_probe_left_out_over_batches_is_bounded_by_the_others():
    model = fit(PROBES)
    assert model.by == "sequence"
    assert {segment.shape for segment in model.segments} == {Shape.CONVEX}
    for each in residuals(model):
        assert each.covered
        assert each.error is not None
        assert abs(each.error) <= 0.2 * each.probe.peak  # across the change of phase; within one, see below
    within_a_phase = [
        each.error for each in residuals(model) if (each.probe.seq, each.probe.batch) in ((128, 1), (128, 2), (384, 4), (384, 8))
    ]
    assert within_a_phase == [0, 0, 0, 0]


def test_each_probe_left_out_over_lengths_is_bounded_by_its_neighbours():
    for batch in sorted({probe.batch for probe in PROBES}):
        short, middle, long = (PEAKS[batch, seq] for seq in (128, 256, 384))
        line = curve([(128, short), (384, long)], exact=True)
        assert line.upper(256) >= middle
        assert line.estimate(256) - middle <= 0.1 * middle
