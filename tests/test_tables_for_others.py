"""Tables of events and of lifetimes, read back by pyarrow: they say what the replay says, and nulls stand where nothing is known."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings

import lifecycle_sim as ls
from lifecycle_sim.cli import main
from lifecycle_sim.cli.endings import Exit
from lifecycle_sim.events import Category, Clock, Kind
from tests.cli_support import KIB, small_trace
from tests.conftest import ROOT
from tests.strategies import traces

GAP = ROOT / "scenarios" / "torch214_stub_train_gap.pickle"
SUFFIXES = (".parquet", ".arrow")


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])


def read_back(path):
    pyarrow = pytest.importorskip("pyarrow")
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path)
    return pyarrow.ipc.open_file(path).read_all()


def written(trace, path, **how):
    pytest.importorskip("pyarrow")
    ls.write(trace, path, force=True, **how)
    return read_back(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_events_are_rows_in_order(tmp_path, suffix):
    table = written(small_trace(), tmp_path / f"events{suffix}")
    assert table.column("kind").to_pylist() == ["alloc", "alloc", "alloc", "free", "free", "alloc"]
    assert table.column("size").to_pylist() == [4 * KIB, 2 * KIB, KIB, 2 * KIB, KIB, KIB]
    assert table.column("event").to_pylist() == [0, 1, 2, 3, 4, 5]
    assert table.column("time").to_pylist() == [10, 20, 30, 40, 50, 60]
    assert table.column("label").to_pylist() == ["a", "b", "c", "b", "c", "d"]
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["owner"], first["basis"], first["device"]) == ("/home/somebody/project/model.py:12 forward", "requested", "cuda:0")
    assert first["stack"].splitlines()[1] == "/home/somebody/project/train.py:3 main"
    assert {b"evidence": b"measured", b"clock": b"ns", b"table": b"events"}.items() <= table.schema.metadata.items()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_lifetimes_are_rows_with_open_ends_null(tmp_path, suffix):
    rows = written(small_trace(), tmp_path / f"lifetimes{suffix}", table="lifetimes").to_pylist()
    told = [(row["label"], row["size"], row["alloc"], row["free"], row["alloc_time"], row["free_time"]) for row in rows]
    assert told == [
        ("a", 4 * KIB, 0, None, 10, None),
        ("b", 2 * KIB, 1, 3, 20, 40),
        ("c", KIB, 2, 4, 30, 50),
        ("d", KIB, 5, None, 60, None),
    ]


def test_lifetimes_of_a_recording_with_a_gap_are_those_of_the_replay(tmp_path):
    trace = ls.read_trace(GAP)
    found = ls.replay_device(trace).lifetimes
    table = written(trace, tmp_path / "gap.parquet", table="lifetimes")
    columns = {
        name: table.column(name).to_numpy() for name in ("size", "address", "lost_alloc", "lost_free", "alloc_earliest", "free_latest")
    }
    for name, column in columns.items():
        assert np.array_equal(column, getattr(found, name)), name
    assert table.column("alloc").null_count == int(found.before_window.sum()) > 0
    assert table.column("free").null_count == int(found.leaked.sum()) > 0


@settings(max_examples=30, deadline=None)
@given(trace=traces(sound=True, min_devices=1))
def test_any_trace_can_be_written_and_holds_its_events(tmp_path_factory, trace):
    folder = tmp_path_factory.mktemp("tables")
    for suffix in SUFFIXES:
        table = written(trace, folder / f"events{suffix}")
        assert table.column("size").to_pylist() == [size for each in trace for size in each.events.size.tolist()]
        assert table.column("kind").to_pylist() == [Kind(kind).name.lower() for each in trace for kind in each.events.kind.tolist()]
        assert table.column("category").to_pylist() == [Category(one).word for each in trace for one in each.events.category.tolist()]
        assert table.column("device").to_pylist() == [each.device for each in trace for _ in range(len(each))]
        assert (table.column("time").null_count == len(trace)) or trace.clock is not Clock.NONE
        if all(each.identified for each in trace):
            sizes = written(trace, folder / f"lifetimes{suffix}", table="lifetimes").column("size").to_pylist()
            assert sorted(sizes) == sorted(size for each in ls.replay_all(trace) for size in each.lifetimes.size.tolist())


def test_the_command_writes_what_is_asked_for(run, tmp_path):
    pytest.importorskip("pyarrow")
    for options, rows in (((), 2188), (("--table", "lifetimes"), 885), (("--largest", "3", "--table", "lifetimes"), 3)):
        result = run("convert", GAP, "-o", tmp_path / "out.parquet", "--force", *options)
        assert result.exit_code == Exit.YES, result.stderr
        assert read_back(tmp_path / "out.parquet").num_rows == rows
    assert (tmp_path / "out.parquet").read_bytes()[:4] == b"PAR1"


def test_the_same_trace_gives_the_same_bytes(tmp_path):
    pytest.importorskip("pyarrow")
    for suffix in SUFFIXES:
        contents = []
        for name in ("one", "two"):
            ls.write(ls.read_trace(GAP), tmp_path / f"{name}{suffix}", table="lifetimes")
            contents.append((tmp_path / f"{name}{suffix}").read_bytes())
        assert contents[0] == contents[1]


def test_a_table_belongs_to_the_formats_of_tables(run, tmp_path):
    result = run("convert", GAP, "-o", tmp_path / "out.jsonl", "--table", "lifetimes")
    assert result.exit_code == Exit.USAGE
    assert "only .parquet and .arrow files hold a table of lifetimes" in result.stderr
    with pytest.raises(ls.InputError, match="choose events or lifetimes"):
        ls.write(small_trace(), tmp_path / "out.parquet", table="storages")


def test_amounts_without_identities_have_events_and_no_lifetimes(tmp_path):
    trace = small_trace()
    amounts = replace(trace, devices=(replace(trace.devices[0], identified=False),))
    assert written(amounts, tmp_path / "events.arrow").num_rows == 6
    with pytest.raises(ls.InputError, match="without identities"):
        ls.write(amounts, tmp_path / "lifetimes.arrow", table="lifetimes")


def test_without_the_package_one_line_tells_how_to_get_it(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("convert", GAP, "-o", tmp_path / "out.parquet")
    assert result.exit_code == Exit.MISSING_PACKAGE
    assert result.stderr == (
        "error: writing Parquet or Arrow files needs the package 'pyarrow', which is not installed: pip install 'lifecycle-sim[arrow]'\n"
    )
    assert not (tmp_path / "out.parquet").exists()
