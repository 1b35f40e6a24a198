"""``lifecycle-sim budget``: counts, files of numbers, files of Python, and the header of a file of weights."""

from __future__ import annotations

import json
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.sources.safetensors import read_weight_header
from lifecycle_sim.study.batch.measured import StepPeaks
from lifecycle_sim.study.batch.verified import find_largest
from lifecycle_sim.study.budget import Sharding
from lifecycle_sim.study.budget.chain import largest_batch
from lifecycle_sim.study.budget.numbers import plan_of, read_numbers
from lifecycle_sim.units import format_gb, format_long, parse_count
from tests.conftest import ROOT
from tests.test_json_docs import documented, keys_in

SHIPPED = ROOT / "scenarios" / "budget"
HEADER = SHIPPED / "mlp.safetensors"


def ask(*arguments: Any, exit_code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["budget", *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def told(*arguments: Any, exit_code: int = 0) -> dict[str, Any]:
    document = json.loads(ask(*arguments, "--json", exit_code=exit_code).stdout)
    assert document["schema"] == "lifecycle-sim/budget/1"
    return document


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "plan.toml").write_text(text)
    return str(tmp_path / "plan.toml")


# ── counts ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_thousand_parameters():
    document = told("--parameters", 1000)
    assert document["states"][0]["total"] == 16_000
    assert [row["bytes"] for row in document["states"][0]["rows"]] == [4000] * 4
    text = ask("--parameters", "1e3").stdout
    assert "together 16,000 16 kB 15.625 KiB" in " ".join(text.split())
    assert "4 B × 1,000" in text


def test_weights_alone():
    document = told("--parameters", "1e9", "--optimizer", "none")
    assert (document["states"][0]["total"], document["opening"]["mode"]) == (4_000_000_000, "inference")
    assert "together 4,000,000,000 4 GB 3.725 GiB" in " ".join(ask("--parameters", "1e9", "--optimizer", "none").stdout.split())


def test_options_reach_every_part():
    options = "--parameters 7e9 --trainable 4e6 --weights bf16 --gradients fp32 --master fp32 --moments bf16 --optimizer adamw+amsgrad"
    document = told(*options.split(), "--buffers", "1 KiB", "--stage", 2, "--data-parallel", 8, "--tokens", "1e9")
    sizes = {row["name"]: row["bytes"] for row in document["states"][0]["rows"]}
    assert sizes == {
        "weights": 8_000_000,
        "frozen weights": 2 * 6_996_000_000,
        "buffers": 1024,
        "gradients": 2_000_000,
        "master weights": 2_000_000,
        "exp_avg": 1_000_000,
        "exp_avg_sq": 1_000_000,
        "max_exp_avg_sq": 1_000_000,
    }
    assert document["opening"]["sharding"] == "ZeRO stage 2 over 8 data-parallel ranks"
    assert document["work"]["flops"] == 6 * 7 * 10**18
    assert document["time"]["time"] is None
    assert [each["name"] for each in document["missing"]] == ["throughput", "loss", "data", "memory"]


def test_a_capacity_decides_the_exit_code():
    assert told("--parameters", "1e9", "--capacity", "16 GB")["memory"]["fits"] is True
    assert told("--parameters", "1e9", "--capacity", "15999999999 B", exit_code=1)["memory"]["needed"] == 16 * 10**9
    assert "states alone leave" in ask("--parameters", "1e9", "--capacity", "16 GB").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing to tell of"),
        (["--parameters", "-5"], "parameters is -5"),
        (["--parameters", "7B"], "is not a count"),
        (["--parameters", "1.5"], "is not a whole number"),
        (["--parameters", "10", "--weights", "bf61"], "did you mean 'bf16'"),
        (["--parameters", "10", "--weights", "0-byte"], "is no type of elements"),
        (["--parameters", "10", "--optimizer", "lion"], "is not known"),
        (["--parameters", "10", "--tokens", "1", "--tokens-per-second", "0"], "above 0"),
        (["--parameters", "10", "--tokens", "1", "--tokens-per-second", "x"], "is no number"),
        (["--parameters", "10", "--only", "plan", "--json"], "--only chooses among tables"),
        (["--parameters", "10", "--card", "h100"], "does not go with numbers"),
        (["--parameters", "10", "--param", "a=1"], "--param sets parameters"),
        (["--parameters", "1e400"], "beyond 10^36"),
        (["--parameters", "9" * 5000], "is not a count"),
        (["--parameters", "10", "--tokens", "1", "--tokens-per-second", "1e999999999"], "give a number above 0"),
        (["--parameters", "10", "--tokens", "1", "--tokens-per-second", "nan"], "give a number above 0"),
        (["x.py", "--weights", "bf16"], "does not go with what FILE.py defines"),
        (["x.py", "--card", "h100"], "add --report"),
        (["x.txt"], "is no Python file"),
        (["absent.toml"], "cannot read"),
    ],
)
def test_what_cannot_be_told_is_refused_in_a_line(arguments, says):
    result = CliRunner().invoke(main, ["budget", *arguments])
    assert result.exit_code in (2, 3)
    assert says in result.stderr
    assert result.stdout == ""


# ── files of numbers ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_audit():
    document = told(SHIPPED / "audit.toml")
    assert document["work"]["flops"] == 6 * 5 * 10**7 * 2 * 10**8
    time = document["time"]
    assert time["theoretical"] == -(-6 * 10**16 * 10**9 // 166_400_000_000)
    assert time["tokens_per_second"] == pytest.approx(512 / 8.648, rel=1e-6)  # the median of eight steps, halves rounded down
    assert time["time"] == -(-2 * 10**8 * time["steps"]["step"] // 512)
    assert time["time"] > 9 * time["theoretical"]
    assert time["samples_per_second"] == pytest.approx(time["tokens_per_second"] / 512)
    assert [part["name"] for part in time["steps"]["parts"]] == ["compute", "data", "saving"]
    assert sum(part["time"] for part in time["steps"]["parts"]) + time["steps"]["rest"] == time["steps"]["step"]
    assert [each["name"] for each in document["missing"]] == ["loss", "data", "memory"]
    other = told(SHIPPED / "audit.toml", "--tokens", "4e8")
    assert other["time"]["time"] == pytest.approx(2 * time["time"], abs=2)


def test_without_a_throughput_there_is_no_time(tmp_path):
    path = written(tmp_path, '[model]\nparameters = 5e7\n[run]\ntokens = 2e8\n[speed]\ndevice = "a100"\n')
    document = told(path)
    assert (document["time"]["theoretical"], document["time"]["time"]) == (192_307_692_308, None)
    text = ask(path).stdout
    assert "a bound, no date" in text
    assert "nothing: without a measured throughput there is no time" in text
    assert "tokens a second, measured on these devices" in text


def test_recipes_beside_each_other():
    document = told(SHIPPED / "recipes.toml")
    assert [states["total"] // 10**9 for states in document["states"]] == [16, 16, 8, 16, 18, 20]
    assert "bf16 alone" in ask(SHIPPED / "recipes.toml", "--only", "states").stdout


def test_candidates_are_not_ranked_and_serving_is_counted():
    document = told(SHIPPED / "candidates.toml")
    assert [each["parameters"] for each in document["candidates"]] == [10**8, 25 * 10**7, 5 * 10**8, 10**9, 2 * 10**9]
    assert [each["approach"] for each in document["allocations"]] == ["1", "2", "chinchilla", "besiroglu"]
    assert all("throughput" in each["missing"] and "data" not in each["missing"] for each in document["candidates"])
    served = told(SHIPPED / "serving.toml")["candidates"]
    assert min(served, key=lambda each: each["training"])["parameters"] == 2 * 10**9
    assert min(served, key=lambda each: each["total"])["parameters"] == 10**9
    assert all(each["inference"] == 2 * each["parameters"] * 10**12 for each in served)


def test_repeated_data():
    document = told(SHIPPED / "repeated_data.toml")
    rows = document["experiment"]
    assert len({row["flops"] for row in rows}) == len({row["accesses"] for row in rows}) == 1
    assert [row["gain"] for row in rows] == sorted((row["gain"] for row in rows), reverse=True)
    text = ask(SHIPPED / "repeated_data.toml").stdout
    assert "no amount of information" in " ".join(text.split())


MIXTURE = "[experts]\nshared = 1e9\nrouter = 1e6\nexpert = 1e8\nexperts = 64\nactive = 2\n[run]\ntokens = 1e9\n"


def test_a_mixture_of_experts_takes_memory_for_all_and_work_for_some(tmp_path):
    document = told(written(tmp_path, MIXTURE))
    assert document["opening"]["parameters"] == 7_401_000_000
    assert document["states"][0]["total"] == 16 * 7_401_000_000
    assert document["work"]["counted"] == 1_201_000_000
    assert document["work"]["flops"] == 6 * 1_201_000_000 * 10**9


def test_a_whole_plan_by_sizes(tmp_path):
    path = written(
        tmp_path,
        """
        [model]
        family = "gpt2"
        layers = 12
        width = 768
        definition = "with-head"
        [[recipe]]
        weights = "bf16"
        master = "fp32"
        optimizer = "adamw"
        [run]
        steps = 1000
        batch = 4
        sequence = 1024
        effective = 2048
        distinct = 1_000_000
        [activations]
        layers = 12
        width = 768
        heads = 12
        vocabulary = 50257
        [memory]
        capacity = "24 GiB"
        margin = "1 GiB"
        [speed]
        device = "a100"
        tokens_per_second = 1000
        saving_once = "2 s"
        saves = 10
        """,
    )
    document = told(path)
    assert document["opening"]["parameters"] == 124_439_808
    assert document["work"]["counted"] == 124_439_808 - 1024 * 768
    assert document["tokens"]["processed"] == 2_048_000
    assert document["tokens"]["positions"] == 4_096_000
    sbh = 1024 * 4 * 768
    assert document["memory"]["activations"] == 12 * (34 * sbh + 5 * 12 * 1024 * 1024 * 4) + 5 * sbh + 4 * 1024 * 4 * 50_257
    assert document["memory"]["fits"] is True
    memory = document["memory"]
    batch, room = document["largest_batch"]["batch"], memory["capacity"] - memory["margin"]
    assert memory["states"] + memory["activations"] * batch // 4 <= room < memory["states"] + memory["activations"] * (batch + 1) // 4
    assert told(path, "--capacity", "1 GiB", exit_code=1)["largest_batch"]["batch"] == -1
    assert document["work"]["attention"] == 12 * 12 * 768 * 1024 * 2_048_000
    assert document["time"]["time"] == 2048 * 10**9 + 20 * 10**9
    assert document["time"]["samples_per_second"] == pytest.approx(1000 / 1024)
    text = ask(path).stdout
    assert "2,048,000 processed in 4,096,000 places" in text
    assert "1,000,000 distinct" in text


def test_adapters_and_quantised_weights(tmp_path):
    path = written(
        tmp_path,
        """
        [model]
        parameters = 6_738_415_616
        [frozen]
        kind = "nf4"
        group = 64
        scale = "fp32"
        second = 256
        [[adapter]]
        rank = 8
        rows = 4096
        columns = 4096
        matrices = 64
        [[recipe]]
        weights = "bf16"
        optimizer = "adamw"
        """,
    )
    document = told(path)
    assert document["opening"]["trainable"] == 4_194_304
    sizes = {row["name"]: row["bytes"] for row in document["states"][0]["rows"]}
    groups = -(-6_738_415_616 // 64)
    assert sizes["quantised weights"] == 6_738_415_616 // 2
    assert sizes["quantised scales"] == groups
    assert sizes["quantised second scales"] == 4 * -(-groups // 256)
    assert sizes["weights"] == sizes["gradients"] == sizes["exp_avg"] == 2 * 4_194_304


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing to tell of"),
        ("[model]\nbuffers = '1 B'", "parameters is missing"),
        ("[modle]\nparameters = 3", "did you mean 'model'"),
        ("[model]\nparameters = -1", "-1 is too few"),
        ("[model]\nparameters = 1e30", "is not exact as a number"),
        ('[model]\nparameters = "7B"', "is not a count"),
        ("[model]\nparameters = true", "is not a whole number"),
        ("[model]\nparameters = 1" + "0" * 40, "beyond 10"),
        ('[model]\nparameters = 1\nbuffers = "' + "9" * 100 + ' B"', "write a number and its unit"),
        ("[model]\nparameters = 1\n[run]\ntokens = 1\n[speed]\ntokens_per_second = 1e-300", "from 1e-09 to"),
        ("[experiment]\nseeds = []", "from one to 100"),
        ("[model]\nlayers = 3", "sizes need a family"),
        ('[model]\nfamily = "gpt2"\nlayers = 3\nffn = 4', "gpt2 needs width; gpt2 has no ffn"),
        ('[model]\nfamily = "gpt2"\nlayers = 3\nwidth = 4\nparameters = 3', "leave parameters out"),
        ("[model]\nparameters = 3\n[experts]\ntotal = 5", "leave parameters and family out"),
        ("[experts]\ntotal = 47e9\n[run]\ntokens = 1e9", "total parameters alone do not tell what a token meets"),
        ("[model]\nparameters = 3\n[[recipe]]\nweights = 0", "a width is 1 or more"),
        ("[model]\nparameters = 3\n[[recipe]]\nweights = 2.5", "is not a type such as 'bf16'"),
        ("[model]\nparameters = 3\n[sharding]\nstage = 5", "stages are 0, 1, 2 and 3"),
        ("[model]\nparameters = 3\n[sharding]\ndata = 3\ndevices = 4", "data-parallel degree alone"),
        ("[model]\nparameters = 3\n[run]\nsteps = 3", "steps need batch and sequence"),
        ("[model]\nparameters = 3\n[run]\nsteps = 3\ntokens = 3", "leave tokens out"),
        ("[model]\nparameters = 3\n[run]\neffective = 3\ntokens = 3", "give steps"),
        ('[model]\nparameters = 3\n[run]\ntokens = 3\n[speed]\nsteps = ["3"]', "has no unit"),
        ('[model]\nparameters = 3\n[run]\ntokens = 3\n[speed]\nsteps = ["3 s"]', "leave 1 step out"),
        ('[model]\nparameters = 3\n[run]\ntokens = 3\n[speed]\nsteps = ["3 s", "2 s"]\nwarmup = 1', "need tokens_per_step"),
        ("[model]\nparameters = 3\n[run]\ntokens = 3\n[speed]\nwarmup = 1", "they go with steps"),
        ('[model]\nparameters = 3\n[run]\ntokens = 3\n[speed]\ndevice = "a100"\npeak = 3', "leave one of the two out"),
        (
            '[model]\nparameters = 1e9\n[run]\ntokens = 3\n[speed]\ndevice = "a100"\ntokens_per_second = 1e6',
            "no device does more than its peak",
        ),
        ("[model]\nparameters = 3\n[activations]\nlayers = 3", "activations need them"),
        ('[model]\nparameters = 3\n[memory]\ncapacity = "24"', "has no unit"),
        ("[model]\nparameters = 3\n[memory]\ncapacity = 24", "write for example '24 B'"),
        ("[planner]\nsizes = [1e9]", "work is missing"),
        ("[planner]\nsizes = 3", "is not a list in brackets"),
        ("[planner]\nwork = 5\nsizes = [1e9]", "not enough for a single token"),
        ("[planner]\nsame_loss = 2\nsizes = [1e9]", "same_loss needs a law"),
        ("[experiment]\nrates = [3]", "does not divide 640"),
        ("[experiment]\nsamples = 5000", "1,000 at most"),
        ("[model]\nparameters = 3\ntrainable = 2\n[[adapter]]\nrank = 1\nrows = 2\ncolumns = 2\nmatrices = 1", "leave trainable out"),
        ('[model]\nparameters = 3\ntrainable = 2\n[frozen]\nkind = "bf16"\ngroup = 3', "8 bits or fewer"),
    ],
)
def test_numbers_that_do_not_go_together_are_told(tmp_path, text, says):
    with pytest.raises(ls.InputError, match=says):
        plan_of(read_numbers(written(tmp_path, text + "\n")))


def test_large_counts_are_no_trouble(tmp_path):
    text = '[model]\nparameters = "1e36"\n[run]\ntokens = "1e36"\n'
    text += '[speed]\npeak = "1e36"\ndevices = "1e36"\ntokens_per_second = 1e-9\n[[adapter]]\n'
    text += 'rank = "1e12"\nrows = "1e12"\ncolumns = "1e12"\nmatrices = "1e10"\n'
    ask(written(tmp_path, text))
    assert told(written(tmp_path, text))["work"]["flops"] == 6 * 10**72


def test_all_problems_are_told_at_once(tmp_path):
    text = "[model]\nparameters = 3\n[sharding]\nstage = 9\n[run]\nsteps = 3\n[[recipe]]\noptimizer = 'adamm'\n"
    with pytest.raises(ls.InputError) as caught:
        plan_of(read_numbers(written(tmp_path, text)))
    assert [problem.split("]")[0] for problem in caught.value.problems] == ["[sharding", "[recipe", "[run"]


def test_only_one_part_is_shown():
    text = ask(SHIPPED / "audit.toml", "--only", "time").stdout
    assert "from measured throughput" in text
    assert "Not counted" not in text
    assert "weights" not in text


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_files_say_what_they_show_and_are_documented(path):
    opening = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert all(line.startswith("#") for line in opening.splitlines())
    assert "It shows: " in opening
    assert "Look for: " in opening
    assert f"scenarios/budget/{path.name}" in (ROOT / "docs" / "budget.md").read_text(encoding="utf-8")


def test_counts_and_long_times_are_read_and_written():
    assert [parse_count(text) for text in ("7e9", "1.5e3", "1_000", "1,000", "-2")] == [7 * 10**9, 1500, 1000, 1000, -2]
    assert parse_count("1e36") == 10**36
    assert [format_gb(size) for size in (999, 4000, 16 * 10**9, -(10**12))] == ["999 B", "4 kB", "16 GB", "-1 TB"]
    assert [format_long(time * 10**9) for time in (59, 119, 120, 7200, 3 * 86_400)] == ["59 s", "119 s", "2.00 min", "2.00 h", "3.00 days"]


# ── the header of a file of weights ─────────────────────────────────────────────────────────────────────────────────────────────────


def file_of(tmp_path: Path, header: Any, data: bytes = b"") -> str:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(tmp_path / "w.safetensors")


def entry(start: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_a_header_alone_tells_the_size_of_the_file(tmp_path):
    header = read_weight_header(str(HEADER))
    assert (header.tensors, header.elements, header.size, header.types, header.complete) == (6, 21_389_412, 85_557_648, ("F32",), False)
    assert header.file_size == HEADER.stat().st_size + header.size
    small = {"__metadata__": {"a": "b"}, "x": entry(0, 8, [2]), "y": entry(8, 10, [1], "BF16")}
    whole = read_weight_header(file_of(tmp_path, small, bytes(10)))
    assert (whole.complete, whole.size, whole.types) == (True, 10, ("BF16", "F32"))
    assert whole.file_size == (tmp_path / "w.safetensors").stat().st_size
    assert read_weight_header(file_of(tmp_path, {})).size == 0


@pytest.mark.parametrize(
    ("header", "data", "says"),
    [
        (b"{", b"", "does not begin with the length"),
        (b"[1]", b"", "no table of tensors"),
        (b"{x}", b"", "not JSON"),
        (b"[" * 100_000, b"", "not JSON"),
        ({"x": 3}, b"", "has no dtype"),
        ({"x": entry(0, 4, [-1])}, b"", "no whole numbers"),
        ({"x": {**entry(0, 4, [1]), "data_offsets": 3}}, b"", "no whole numbers"),
        ({"x": entry(0, 4, [1], "F3")}, b"", "is not known"),
        ({"x": entry(0, 5, [1])}, b"", "should take 4 B, but has 5"),
        ({"x": entry(4, 8, [1])}, b"", "gap or overlap"),
        ({"x": entry(0, 4, [1]), "y": entry(0, 4, [1])}, b"", "gap or overlap"),
        ({"x": entry(0, 8, [2])}, b"123", "the download broke off"),
    ],
)
def test_headers_that_contradict_themselves_are_refused(tmp_path, header, data, says):
    with pytest.raises(ls.InputError, match=says):
        read_weight_header(file_of(tmp_path, header, data))


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(ls.InputError, match="cannot read"):
        read_weight_header(str(tmp_path / "absent"))
    (tmp_path / "short").write_bytes(b"123")
    with pytest.raises(ls.InputError, match="does not begin"):
        read_weight_header(str(tmp_path / "short"))
    (tmp_path / "cut").write_bytes(struct.pack("<Q", 100) + b"{")
    with pytest.raises(ls.InputError, match="ends inside its header"):
        read_weight_header(str(tmp_path / "cut"))


# ── files of Python ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_counted_states_are_the_closed_forms():
    pytest.importorskip("torch", reason="torch is not installed: counting a model's parameters needs it")
    document = told("scenarios/capture/shared_linear.py", "--weight-file", HEADER)
    states = document["states"][0]
    assert states["total"] == 131_072
    assert states["notes"] == ["the states are those of the closed form of adamw, to the byte"]
    assert document["opening"]["optimizer"] == "adamw"
    assert document["weight_file"]["file_bytes"] == HEADER.stat().st_size + 85_557_648
    masters = told("scenarios/capture/shared_linear.py:with_master")["states"][0]
    assert masters["total"] == 131_072
    assert "has no closed form here" in masters["notes"][0]


def test_counted_states_are_divided_like_counts():
    pytest.importorskip("torch", reason="torch is not installed: counting a model's parameters needs it")
    from lifecycle_sim.sources.capture import params_file
    from lifecycle_sim.study.budget.chain import table_budget

    table = params_file("scenarios/capture/mlp.py")
    for stage in range(4):
        for data in (1, 2, 7):
            division = Sharding(stage, data)
            expected = ls.state_budget(table.elements, optimizer="adamw", sharding=division)
            made = table_budget(table, division)
            assert [(row.category, row.size, row.whole) for row in made.rows] == [
                (row.category, row.size, row.whole) for row in expected.rows
            ]
    by_rows = table_budget(table, Sharding(3, 7, unit="parameter"))
    assert by_rows.of("parameter") == sum(-(-row.shape[0] // 7) * row.size // row.shape[0] for row in table.rows)


@pytest.fixture(scope="module")
def mlp() -> Any:
    """The MLP's parameters and a captured step of it."""
    pytest.importorskip("torch", reason="torch is not installed: captures need it")
    from lifecycle_sim.sources.capture import params_file
    from lifecycle_sim.study.budget.chain import Step

    captured = ls.capture_file("scenarios/capture/mlp.py", None, {"batch": 64})
    return params_file("scenarios/capture/mlp.py"), Step(captured, ls.replay_device(captured.trace), ls.predict(captured.trace))


def test_the_report_goes_from_parameters_to_time(mlp):
    from lifecycle_sim.output.summary_budget import budget_document
    from lifecycle_sim.study.budget.chain import Given, file_report

    table, step = mlp
    given = Given(64, None, 10**9, None, 512 * 2**20, Fraction(5000), ls.budget.PEAKS["h100"])
    document = budget_document("mlp.py", file_report("mlp", table, given, step=step))
    memory = document["memory"]
    assert (memory["evidence"], memory["basis"]) == ("simulated", "requested")
    assert memory["states"] + memory["activations"] + memory["temporaries"] == memory["peak"]
    assert memory["needed"] == memory["reserved"] + 512 * 2**20
    assert memory["first_step"] <= memory["peak"] <= memory["reserved"]
    rows = 64 * 4  # bytes of a column of the batch
    saved = rows * 4 * 4096 + rows * 100  # two layers before and after GELU, and the log-probabilities
    assert saved <= memory["most_activations"] <= saved + 2 * rows * 100 + 64
    assert document["states"][0]["total"] == 16 * 21_389_412
    assert document["work"]["flops"] == 6 * 21_389_412 * 10**9
    products = 1024 * 4096 + 4096 * 4096 + 4096 * 100
    assert document["work"]["step"] == 2 * 64 * (3 * products - 1024 * 4096)  # nobody wants the gradient of the input
    assert document["time"]["time"] == 200_000 * 10**9
    assert (document["opening"]["batch"], document["opening"]["mode"]) == (64, "training")
    assert [each["name"] for each in document["missing"]] == ["loss", "data"]
    assert {"context", "overheads", "host"} <= {each["name"] for each in document["not_counted"]}


def test_a_report_on_a_small_card_does_not_fit(mlp):
    from lifecycle_sim.study.budget.chain import Given, file_report

    table, step = mlp
    assert file_report("mlp", table, Given(capacity=300 * 2**20), step=step).fits is False
    assert file_report("mlp", table, Given(), step=step).fits is True  # the card's own capacity
    reserved = file_report("mlp", table, Given(), step=step).memory.reserved
    assert file_report("mlp", table, Given(capacity=reserved + 5, margin=5), step=step).fits is True
    assert file_report("mlp", table, Given(capacity=reserved + 5, margin=6), step=step).fits is False


@pytest.mark.parametrize(
    ("budget", "margin", "batch", "says"),
    [
        (1000, 0, 11, "the next needs 40 B more reserved than there are, in backward"),
        (1041, 2, 11, "the next needs 1 B more reserved than there are, in backward"),
        (1040, 0, 12, "the next needs 80 B more"),
        (150, 0, -1, "not even what does not depend on the batch fits"),
        (10**6, 0, 64, "the most that was looked for: memory does not bind, 994,800 B are left"),
    ],
)
def test_the_largest_batch_is_that_of_runs_on_both_sides(budget, margin, batch, says):
    def measure(places: Any) -> list[StepPeaks]:
        peaks = {"forward": 3, "backward": 5}
        return [StepPeaks(count, None, {"reserved": 80 + 80 * count}, peaks, states_together=200) for _, count in places]

    (found,) = find_largest(measure, budget, headroom=margin, limit=64)
    told = largest_batch(found)
    assert told.batch == batch
    assert says in told.text
    assert dict(told.probes)[max(1, batch)] == 80 + 80 * max(1, batch)


def test_the_command_reports_on_a_file():
    pytest.importorskip("torch", reason="torch is not installed: captures need it")
    parts = [f"--only={part}" for part in ("plan", "weights", "step", "not-counted")]  # and no search, which takes many captures
    arguments = ["--report", "--batch", 32, "--weight-file", HEADER, "--capacity", "1 KiB", *parts]
    result = ask("scenarios/capture/shared_linear.py", *arguments, exit_code=1)
    for word in ("The file of weights", "A step, simulated", "does not fit", "aten.", "Not counted", "B = 32"):
        assert word in result.stdout


def test_the_shipped_header_is_that_of_the_model():
    torch = pytest.importorskip("torch", reason="torch is not installed: the model is built with it")
    from scenarios.capture.mlp import build_model

    with torch.device("meta"):
        shapes = {name: list(parameter.shape) for name, parameter in build_model().named_parameters()}
    data = HEADER.read_bytes()
    header = json.loads(data[8:])
    assert {name: each["shape"] for name, each in header.items() if name != "__metadata__"} == shapes


# ── the documents ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        *(("budget", [str(SHIPPED / f"{name}.toml")]) for name in ("audit", "recipes", "candidates", "serving", "repeated_data")),
        ("budget", ["--parameters", "10", "--capacity", "1 KiB"]),
        ("protocol", [str(SHIPPED / "isoflop.toml")]),
    ],
)
def test_every_key_of_a_document_is_named_in_its_section(command, arguments):
    document = json.loads(CliRunner().invoke(main, [command, *arguments, "--json"]).stdout)
    assert set(keys_in(document)) <= documented(command) | {"schema", "source", "name", "title", "basis"}
