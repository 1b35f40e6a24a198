"""``lifecycle-sim line`` end to end: answers, exit codes, files, figures, and the other commands on a line."""

import json
import re
from collections import Counter
from itertools import accumulate, pairwise

import pytest
from click.testing import CliRunner

from lifecycle_sim.cli import main
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.output.figures import line_occupancy, line_variants, line_visits
from lifecycle_sim.study.pipeline.line_answers import undetermined, what_if_line
from lifecycle_sim.study.pipeline.line_engine import run_line
from lifecycle_sim.study.pipeline.line_figures import measure_line
from lifecycle_sim.study.pipeline.line_file import load_line
from tests.cli_support import json_of
from tests.conftest import ROOT
from tests.test_json_docs import DATA, SECTIONS, SHARED, keys_in

PEAK = ROOT / "scenarios" / "line_peak.toml"
GIB = 2**30
SIX = ["--set", "gap=500", "--set", "gap=1000", "--set", "gap=1000,horizon=50 s", "--set", "jobs=16,gap=500,horizon=200 s"]


@pytest.fixture(autouse=True)
def _width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)


@pytest.fixture
def run():
    return lambda *arguments: CliRunner(catch_exceptions=False).invoke(main, [str(each) for each in arguments])


def test_the_counter_example_is_that_of_the_reference_table(run, shared):
    """Burst, staggered, serial: one total work, one average, three peaks."""
    table = json.loads((shared / "data/reference/peak_vs_average_examples.json").read_text())
    rows = json_of(run("line", PEAK, "--json", "--sweep", "gap=0,500,1000"))["rows"]
    for case, row in (("burst", rows[0]), ("staggered", rows[1]), ("serial", rows[2])):
        (told,) = [each for each in table if each["case"].startswith(case)]
        assert row["total_work"] == told["total_work_GiB_s"] * GIB * 10**9
        assert row["average"]["mean"] == pytest.approx(told["avg_over_100s_GiB"] * GIB)
        assert row["peak"]["amount"] == told["peak_GiB"] * GIB
        assert row["capacity"]["fits"] is told["fits_16GiB"]


def test_none_of_the_three_determines_another(run):
    found = json_of(run("line", PEAK, "--json", *SIX))["undetermined"]
    shown = {tuple(re.findall(r"the same (total work|average|peak)", sentence)) for sentence in found}
    assert len(shown) == len(found) == 6
    answers = what_if_line(PEAK, SIX[1::2])
    assert undetermined(answers) == found
    assert undetermined(answers[:1]) == []
    assert "None of the three determines another" in run("line", PEAK, *SIX).stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([PEAK], Exit.NO),
        ([PEAK, "--param", "gap=500"], Exit.YES),
        ([PEAK, "--capacity", "32 GiB"], Exit.YES),
        ([PEAK, "--capacity", "31 GiB"], Exit.NO),
        ([PEAK, "--sweep", "gap=0,500"], Exit.YES),
        ([PEAK, "--set", "capacity.mode=block"], Exit.YES),
        (["scenarios/line_deadlock.toml"], Exit.NO),
        (["scenarios/line_queue.toml", "--replications", 1], Exit.YES),
        ([PEAK, "--capacity", "4G"], Exit.BAD_INPUT),
        ([PEAK, "--set", "nothing"], Exit.BAD_INPUT),
        ([PEAK, "--param", "gaps=3"], Exit.BAD_INPUT),
        ([PEAK, "--kind", "visits"], Exit.USAGE),
        ([PEAK, "--set", "gap=500", "-o", "absent/line.jsonl"], Exit.USAGE),
        (["scenarios/mlp_step.toml"], Exit.BAD_INPUT),
        (["scenarios/torch214_stub_small.pickle"], Exit.BAD_INPUT),
        (["absent.toml"], Exit.BAD_INPUT),
    ],
)
def test_the_exit_code_answers(run, arguments, code):
    result = run("line", *arguments)
    assert result.exit_code == code
    assert bool(result.stdout) == (code in (Exit.YES, Exit.NO))
    assert result.stderr.startswith("error: ") == (code == Exit.BAD_INPUT)


def test_a_deadlock_is_told_with_its_cycle(run):
    result = run("line", "scenarios/line_deadlock.toml")
    assert "deadlock at 4 ticks: 2 items in the line, 4 outside, and none can go on" in result.stdout
    assert "check, machine 1 holds part 0 and waits for a place at press, held by press, machine 1" in result.stdout
    row = json_of(run("line", "scenarios/line_deadlock.toml", "--json"))["rows"][0]
    assert [wait["who"] for wait in row["deadlock"]["cycle"]] == ["check, machine 1", "press, machine 1"]


@pytest.mark.parametrize("more", [[], ["--set", "saw.machines=2"], ["--levels"]])
def test_every_key_of_the_document_is_named_in_the_docs(run, more):
    document = json_of(run("line", "scenarios/line_workshop.toml", "--replications", 2, "--json", *more))
    stuck = json_of(run("line", "scenarios/line_deadlock.toml", "--json"))
    named = set(re.findall(r"`([a-z_]+)`", SHARED + SECTIONS["line"]))
    figures = set(document["rows"][0]["estimates"])
    assert set(keys_in(document)) | set(keys_in(stuck)) <= named | DATA | figures
    assert {name for name in figures if not name.startswith("utilisation ")} <= named


def test_rounding_that_shows_is_told(run, tmp_path):
    path = tmp_path / "short.toml"
    path.write_text('[[item]]\ncount = 3\n[[stage]]\nname = "clerk"\ntime = { draw = "exponential", mean = 3 }\n')
    assert "which shows in the short times of clerk" in " ".join(run("line", path).stdout.split())
    assert json_of(run("line", path, "--json"))["rules"]["coarse"] == ["clerk"]
    assert json_of(run("line", "scenarios/line_queue.toml", "--replications", 1, "--json"))["rules"]["coarse"] == []


def test_the_document_is_the_same_whoever_works_it_out(run):
    one = run("line", "scenarios/line_workshop.toml", "--replications", 3, "--json", "--workers", 1).stdout
    assert run("line", "scenarios/line_workshop.toml", "--replications", 3, "--json", "--workers", 2).stdout == one


def test_the_occupancy_is_a_trace_for_every_other_command(run, tmp_path):
    assert run("line", PEAK, "-o", tmp_path / "line.jsonl").exit_code == Exit.NO
    (written,) = json_of(run("peak", tmp_path / "line.jsonl", "--json", "--by", "owner"))["devices"]
    (direct,) = json_of(run("peak", PEAK, "--json", "--by", "owner"))["devices"]
    assert written["peak"] == direct["peak"]
    assert written["peak"]["bytes"] == 32 * GIB
    assert written["owners"]["shares"][0]["key"].endswith("load")
    assert run("timeline", PEAK, "--json").exit_code == Exit.YES
    assert run("plot", tmp_path / "line.jsonl", "-o", tmp_path / "line.png").exit_code == Exit.YES
    assert run("run", PEAK).stderr.startswith("error: line_peak.toml has [[stage]] tables: it is a line, ask lifecycle-sim line about it")


def test_a_line_comes_from_standard_input_too():
    result = CliRunner().invoke(main, ["line", "-", "--json"], input=PEAK.read_bytes())
    assert json_of(result)["rows"][0]["peak"]["amount"] == 32 * GIB


@pytest.mark.parametrize("kind", ["occupancy", "visits", "compare"])
@pytest.mark.parametrize("name", ["peak", "workshop", "handover", "deadlock"])
def test_figures_are_drawn_and_nothing_is_overwritten(run, tmp_path, kind, name):
    picture = tmp_path / "out.png"
    arguments = ["line", f"scenarios/line_{name}.toml", "-o", picture, "--kind", kind]
    assert run(*arguments).exit_code in (Exit.YES, Exit.NO)
    first = picture.read_bytes()
    assert run(*arguments).exit_code == Exit.USAGE
    assert run(*arguments, "--force").exit_code in (Exit.YES, Exit.NO)
    assert picture.read_bytes() == first


def drawn(axes, name):
    return next(artist for artist in axes.get_children() if artist.get_gid() == name)


def test_a_figure_shows_the_exact_levels():
    figures = measure_line(run_line(load_line(PEAK, {"gap": 400})))
    axes = line_occupancy(figures)
    times, levels = drawn(axes, "total").get_data()
    assert levels.max() == figures.total.peak == 12 * GIB
    assert times.tolist()[-1] == 3.8
    assert drawn(axes, "peak").get_data() == ([0.8], [12 * GIB])
    assert drawn(axes, "capacity").get_ydata()[0] == 16 * GIB
    assert drawn(axes, "average").get_ydata()[0] == pytest.approx(0.32 * GIB)
    assert "12 GiB" in " ".join(text.get_text() for text in axes.texts)


def test_several_lines_share_their_axes():
    answers = what_if_line(PEAK, ["gap=500", "gap=1000"])
    axes = line_variants([(each.name, each.first) for each in answers])
    panels = axes.figure.axes
    assert [drawn(panel, "total").get_data()[1].max() / GIB for panel in panels] == [32, 8, 4]
    assert len({panel.get_ylim() for panel in panels}) == 1
    assert len({panel.get_xlim() for panel in panels}) == 1
    assert all("average  327.68 MiB over 100 s" in [text.get_text() for text in panel.texts] for panel in panels)


def test_visits_have_a_bar_for_each_batch():
    figures = measure_line(run_line(load_line(PEAK, {"gap": 500})))
    axes = line_visits(figures)
    assert len(axes.patches) == 24
    assert [label.get_text() for label in axes.get_yticklabels()] == ["load #1", "compute #1", "store #1"]
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(8.0)


def test_a_long_run_is_drawn_with_its_peak():
    text = 'seed = 4\n[[item]]\ncount = 6000\narrivals = "poisson"\nevery = 10\n[[stage]]\nname = "a"\n'
    figures = measure_line(run_line(load_line(text + 'time = { draw = "exponential", mean = 8 }\n')))
    axes = line_occupancy(figures)
    _, levels = drawn(axes, "total").get_data()
    assert len(levels) < 2100
    assert levels.max() == figures.total.peak


def test_a_line_fits_only_if_all_its_runs_do(run, tmp_path):
    """With seed 8 the first of twenty runs of the workshop stays within its floor, and others do not."""
    result = run("line", ROOT / "scenarios/line_workshop.toml", "--seed", 8, "--json")
    assert result.exit_code == Exit.NO
    (row,) = json_of(result)["rows"]
    assert row["peak"]["amount"] <= 40 < row["estimates"]["peak"]["most"]
    assert row["capacity"]["fits"] is False
    assert 0 < row["unfit"] < 20
    assert f"does not fit in {row['unfit']} of 20 runs\n" in run("line", ROOT / "scenarios/line_workshop.toml", "--seed", 8).stdout
    answer = what_if_line(ROOT / "scenarios/line_workshop.toml", ["seed=8"])[1]
    alone = [measure_line(run_line(answer.line, number)).fits for number in range(20)]
    assert (answer.unfit, answer.fits) == (alone.count(False), False) == (row["unfit"], False)


def test_a_capacity_smaller_than_one_item_is_said_to_hold_none(run):
    result = run("line", PEAK, "--capacity", "3 GiB", "--json")
    assert result.exit_code == Exit.NO
    told = json_of(result)["rows"][0]["too_small"]
    assert told[0].endswith("'job' at 'load' takes 4,294,967,296 B, and the line has 3,221,225,472: give 4,294,967,296 or more")
    assert json_of(run("line", PEAK, "--capacity", "4 GiB", "--json"))["rows"][0]["too_small"] == []


def test_a_problem_of_an_edit_or_option_names_it(run):
    assert run("line", PEAK, "--capacity", "3").stderr.startswith("error: with capacity=3: ")
    assert run("line", PEAK, "--set", "load.machine=3").stderr.startswith("error: with load.machine=3: line 22")
    assert run("line", PEAK, "--set", "press.machine=3").stderr.startswith("error: press.machine=3: there is no stage")


def test_a_throughput_of_another_time_than_the_averages_says_so(run):
    assert "8/s over all of the 1 s\n" in run("line", PEAK).stdout
    assert "62.7/s\n" in run("line", ROOT / "scenarios/line_handover.toml").stdout


def test_a_window_without_time_has_no_bubble(run):
    text = '[[item]]\ncount = 3\n[[stage]]\nname = "a"\ntime = 0\n'
    result = CliRunner(catch_exceptions=False).invoke(main, ["line", "-"], input=text)
    assert "bubble" not in result.stdout
    assert "throughput" not in result.stdout


def test_the_occupancy_over_time_is_in_the_document_if_it_is_asked_for(run):
    path = ROOT / "scenarios/line_workshop.toml"
    (row,) = json_of(run("line", path, "--json", "--levels"))["rows"]
    total, *parts = row["levels"]
    assert [part["place"] for part in parts] == ["saw", "paint", "oven", "saw → paint", "paint → oven"]
    assert total["place"] is None
    assert max(total["amounts"]) == row["peak"]["amount"]
    spans = [after - before for before, after in pairwise(total["times"])]
    assert sum(amount * span for amount, span in zip(total["amounts"], spans, strict=False)) == row["total_work"]
    changes = Counter()
    for part in parts:
        for time, change in zip(part["times"], [b - a for a, b in pairwise([0, *part["amounts"]])], strict=True):
            changes[time] += change
    assert dict(zip(total["times"], accumulate(changes[time] for time in total["times"]), strict=True)) == dict(
        zip(total["times"], total["amounts"], strict=True)
    )
    assert json_of(run("line", path, "--json"))["rows"][0]["levels"] is None
    assert run("line", path, "--levels").exit_code == Exit.USAGE


def test_room_that_items_in_a_buffer_hold_is_said_to_be_theirs():
    """One item has no room for its output because the next one waits behind it, for its machine."""
    text = 'unit = "m2"\ncapacity = { size = 10, mode = "block" }\n[[item]]\nname = "a"\ncount = 10\nsize = 4\n'
    text += '[[stage]]\nname = "x"\ntime = 2\noutput = 8\n'
    result = CliRunner(catch_exceptions=False).invoke(main, ["line", "-", "--json"], input=text)
    assert result.exit_code == Exit.NO
    cycle = json_of(result)["rows"][0]["deadlock"]["cycle"]
    assert [(each["who"], each["item"], each["held_by"]) for each in cycle] == [
        ("x, machine 1", "a 0", ["x, buffer"]),
        ("x, buffer", "a 1", ["x, machine 1"]),
    ]
    assert cycle[1]["waits_for"] == "a machine at x"
