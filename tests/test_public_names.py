"""The public names: a small list that changes only on purpose, imported only when asked for."""

import subprocess
import sys

import pytest

import lifecycle_sim as ls
from tests.cli_support import KIB, small_trace
from tests.conftest import ROOT

NAMES = (
    "Attribution BatchPlans Capture CaptureError CapturePlan Decision DeviceProfile DeviceReplay DeviceTrace Events FeasibleRange "
    "Finding Fitted InputError Largest LifecycleError Lifetimes MissingExtraError OpenLoop OutputExistsError ParameterTable Peak "
    "Prediction Probe Program Recompute Recording RegionFrontier RegionPlan ScenarioError ScheduleRun SnapshotError StateBudget "
    "SteadyState Sweep Timeline Trace TraceFormatError TraceInvariantError UnitError UnsafePickleError Variant Verdict Verified "
    "VerifiedPlan WhatIf Why apply attribute budget capture capture_file capture_runs captured_layers check compare_schedules "
    "decide feasible_range figures find_largest fit frontier largest largest_batch largest_microbatch line_trace load_layers "
    "load_line load_scenario max_batch measure_line open_loop params plan predict read_trace record replay_all replay_device run "
    "run_line run_scenario run_schedule schedule schedule_trace state_budget steady_state summarise sweep_allocator sweep_file "
    "verdict verify what_if what_if_allocator what_if_line why_out_of_memory write"
)


def test_the_list_is_the_agreed_one():
    assert " ".join(ls.__all__) == NAMES == " ".join(sorted(ls.__all__))


@pytest.mark.parametrize("name", NAMES.split())
def test_every_name_is_there(name):
    assert name in dir(ls)
    assert getattr(ls, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'replay_everything'"):
        ls.replay_everything  # noqa: B018


def test_importing_the_package_imports_nothing_else():
    code = "import lifecycle_sim, sys; print([name for name in ('numpy', 'rich', 'click', 'msgspec') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_eight_lines_tell_the_peak_and_who_holds_it(tmp_path):
    ls.write(small_trace(), tmp_path / "small.jsonl")
    trace = ls.read_trace(tmp_path / "small.jsonl")
    (replayed,) = ls.replay_all(trace)
    assert ls.replay_device(trace).peak == replayed.peak
    assert (replayed.peak.size, replayed.peak.event) == (7 * KIB, 2)
    assert [share.size for share in ls.attribute(replayed).shares] == [5 * KIB, 2 * KIB]
    assert ls.verdict(replayed, 7 * KIB).fits is True
    assert ls.summarise(replayed)["peak"]["bytes"] == 7 * KIB


@pytest.mark.parametrize(
    "record",
    [
        lambda replayed: replayed,
        lambda replayed: replayed.timeline,
        lambda replayed: ls.attribute(replayed),
        lambda replayed: ls.steady_state(replayed),
    ],
)
def test_notebooks_show_records_as_tables(record):
    (replayed,) = ls.replay_all(small_trace())
    html = record(replayed)._repr_html_()
    assert html.startswith("<table><caption>")
    assert html.count("<tr>") == html.count("</tr>") > 0
    assert ("7,168 B" in html) or "steps" in html


@pytest.mark.parametrize(
    ("record", "says", "shown"),
    [
        (lambda trace, replayed: trace, "Trace(cuda-snapshot, measured", "2,988 events, requested bytes"),
        (lambda trace, replayed: ls.verdict(replayed, 800 << 20), "Verdict(capacity=838860800", "(66 MiB) too much"),
        (lambda trace, replayed: ls.open_loop(trace), "1,090 of 1,090 placements exact, 0 differences", "908,066,816 B (866 MiB)"),
        (lambda trace, replayed: ls.what_if_allocator(replayed), "rows: 1, the first peaks at 908,066,816 B", "(866 MiB) reserved"),
        (
            lambda trace, replayed: ls.why_out_of_memory(replayed, capacity=800 << 20),
            "event 2217 asked for 81,920,000 B, 124,382,208 B free in 19 pieces",
            "would have met it",
        ),
        (lambda trace, replayed: ls.why_out_of_memory(replayed, capacity=80 << 30), "every request was met", "within 85,899,345,920 B"),
    ],
)
def test_what_is_asked_about_a_recording_shows_itself_in_a_line_and_as_a_table(record, says, shown):
    trace = ls.read_trace(ROOT / "scenarios" / "torch214_stub_train.pickle")
    told = record(trace, ls.replay_device(trace))
    assert says in repr(told)
    assert len(repr(told)) < 250
    assert told._repr_html_().startswith("<table><caption>")
    assert shown in told._repr_html_()


def test_notebook_tables_escape_what_a_recording_says():
    from lifecycle_sim.display import table_html

    assert "<script>" not in table_html("<script>", [("<script>", "<script>")])


def test_what_completion_and_help_show_is_public():
    import pydoc

    assert dir(ls) == sorted(ls.__all__)
    assert dir(ls.figures) == sorted(ls.figures.__all__)
    text = pydoc.render_doc(ls.figures, renderer=pydoc.plaintext)
    assert all(f"    {name}(" in text for name in ls.figures.__all__)
    assert '"category"' in ls.attribute.__doc__


def test_what_is_no_trace_is_refused_in_words():
    with pytest.raises(ls.InputError, match=r"not str: read a recording with read_trace\(path\) first"):
        ls.replay_device("snapshot.pickle")


def test_functions_bear_their_public_names():
    for name in ls.__all__:
        assert getattr(getattr(ls, name), "__name__", name).rpartition(".")[2] == name
