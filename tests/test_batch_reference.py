"""The probes that ship, captured from a real job's program: against its recordings, and each left out over lengths and batches."""

from __future__ import annotations

from dataclasses import replace
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
    assert all(set(segment.curves) == {"forward", "backward", "optimizer"} for segment in model.segments)
    errors = {}
    for each in residuals(model):
        assert each.covered
        assert each.error is not None
        errors[each.probe.seq, each.probe.batch] = each.error / each.probe.peak
    # each phase has its own line, so that a change of phase costs nothing; what is left is a bend of backward between two probes
    bends = {(128, 4): 0.060, (256, 2): 0.063, (256, 4): 0.0015, (384, 2): 0.0052}
    for place, error in errors.items():
        assert error == pytest.approx(bends.get(place, 0), abs=0.0005), place
    without = fit(replace(probe, phases={}) for probe in PROBES)
    assert max(abs(each.error or 0) / each.probe.peak for each in residuals(without)) > 0.19


def test_each_probe_left_out_over_lengths_is_bounded_by_its_neighbours():
    for batch in sorted({probe.batch for probe in PROBES}):
        short, middle, long = (PEAKS[batch, seq] for seq in (128, 256, 384))
        line = curve([(128, short), (384, long)], exact=True)
        assert line.upper(256) >= middle
        assert line.estimate(256) - middle <= 0.1 * middle
