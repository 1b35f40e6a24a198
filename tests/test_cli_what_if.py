"""``lifecycle-sim allocator`` with ``--set``, ``--sweep``, ``--capacity`` and ``--why``: answers, exit codes, documents."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lifecycle_sim.cli import main
from tests.cli_support import keys_of, lifecycle_sim
from tests.conftest import ROOT

TRAIN = ROOT / "scenarios" / "torch214_stub_train.pickle"
FAILED = ROOT / "tests" / "data" / "out_of_memory_1.pickle.gz"


def asked(*arguments: object) -> Result:
    """The command's answer, at a width of 140."""
    return CliRunner().invoke(main, ["allocator", *map(str, arguments)], env={"COLUMNS": "140"})


def document(*arguments: object) -> dict[str, Any]:
    return json.loads(asked(*arguments, "--json").stdout)


def words(result: Result) -> str:
    return " ".join(result.stdout.split())


def test_settings_stand_side_by_side() -> None:
    result = asked(TRAIN, "--set", "expandable_segments:True", "--set", "max_split_size_mb:32")
    assert result.exit_code == 0, result.output
    assert "0 B: the first row has the recorded peak" in words(result)
    assert "recorded 866 MiB 740.4 MiB 5.409 MiB 127.4 MiB 44" in words(result)
    assert "expandable_segments:True 842 MiB -2.8 % 733.2 MiB 2.867 KiB 108.8 MiB 41" in words(result)


def test_the_exit_code_says_whether_anything_fits() -> None:
    assert asked(TRAIN, "--capacity", "800 MiB").exit_code == 1
    result = asked(TRAIN, "--capacity", "800 MiB", "--set", "expandable_segments:True")
    assert result.exit_code == 0
    assert "recorded at event 2,217: asked for 81,920,000 B (78.125 MiB)" in words(result)


def test_a_sweep_says_that_it_is_ranked() -> None:
    found = document(TRAIN, "--sweep")["devices"][0]["what_if"]
    assert found["ranked"] is True
    assert [row["name"] for row in found["rows"][:2]] == ["recorded", "expandable_segments:True"]
    assert "What if, best first" in asked(TRAIN, "--sweep").stdout


def test_why_answers_in_a_sentence_first() -> None:
    result = asked(FAILED, "--why")
    assert result.exit_code == 1
    said = words(result)
    assert "Memory ran out at event 364: asked for 7,340,544 B" in said
    assert 'PyTorch says "Tried to allocate 20 MiB"' in said
    assert "30.462 MiB was free in 8 pieces, the largest on its stream and in its pool 7,339,520 B" in said
    assert "With expandable_segments:True it would have fitted." in said
    assert "It would have been met with 16 MiB more of the device, or for a request of 7,339,520 B (7 MiB), 1,024 B (1 KiB) less." in said
    fine = asked(TRAIN, "--why", "--capacity", "900 MiB")
    assert fine.exit_code == 0
    assert "Nothing fails" in fine.stdout


def test_the_documents_keep_their_keys() -> None:
    what_if = document(FAILED, "--set", "expandable_segments:True")
    assert what_if["schema"] == "lifecycle-sim/allocator/1"
    assert list(what_if) == ["schema", "source", "devices", "fits"]
    outcome = {
        "peak_reserved": {"bytes": None, "event": None},
        "peak_allocated": None,
        "at_peak": {"requested": None, "internal": None, "external": None},
        "end_reserved": None,
        "num_device_alloc": None,
        "num_device_free": None,
        "num_alloc_retries": None,
        "recorded_failures": {"tried": None, "met": None},
    }
    failure = dict.fromkeys(
        [
            "event",
            "failed_in_recording",
            "requested",
            "rounded",
            "segment",
            "stream",
            "pool",
            "small",
            "allocated",
            "active",
            "reserved",
            "given_back",
            "device_free",
            "limit",
        ]
    )
    assumption = [{"code": None, "count": None, "bytes": None, "text": None}]
    head = {"device": None, "events": None}
    row = {"name": None, "options": None, "start": None, "fits": None, **outcome, "failure": failure, "note": None}
    assert keys_of(what_if["devices"]) == [
        head
        | {
            "what_if": {
                "release": None,
                "capacity": None,
                "capacity_from": None,
                "ranked": None,
                "base": {"recorded_peak": None, "error": None, "placed": None, "placed_error": None},
                "rows": [row],
                "assumptions": assumption,
            }
        }
    ]
    assert keys_of(document(FAILED, "--why")["devices"]) == [
        head
        | {
            "why": {
                "release": None,
                "capacity": None,
                "capacity_from": None,
                "options": None,
                "start": None,
                "fits": None,
                "failure": failure,
                "free": {
                    "bytes": None,
                    "count": None,
                    "enough_in_all": None,
                    "places": [dict.fromkeys(["pool", "small", "stream", "bytes", "count", "largest", "usable"])],
                    "largest": None,
                },
                "remedies": [dict.fromkeys(["means", "name", "met", "fits", "bytes", "total"]) | {"failure": failure}],
                "until_then": outcome | {"failure": failure},
                "assumptions": assumption,
            }
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--why", "--sweep"], "--why tries other settings by itself"),
        (["--event", "3"], "add --why"),
        (["--why", "--event", "3", "--capacity", "1 GiB"], "choose one"),
        (["--at", "3", "--sweep"], "--at belongs to the report"),
        (["--capacity", "24"], "has no unit"),
    ],
)
def test_options_that_ask_two_questions(arguments: list[str], says: str) -> None:
    result = asked(TRAIN, *arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "max_split_size:32"], "did you mean 'max_split_size_mb'?"),
        (["--set", "expandable_segments:True", "--release", "2.0"], "is not in PyTorch 2.0"),
        (["--why"], "the recording has no out-of-memory entry"),
        (["--why", "--event", "3"], "event 3 of cuda:0 is no out-of-memory entry"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], says: str) -> None:
    result = asked(TRAIN, *arguments)
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert says in line


def test_processes_give_the_same_bytes(tmp_path: Path) -> None:
    arguments = ("allocator", TRAIN, "--set", "expandable_segments:True", "--json", "--workers")
    one, two = (lifecycle_sim(*arguments, workers) for workers in (1, 2))
    assert one.stdout == two.stdout
    assert json.loads(one.stdout)["devices"][0]["what_if"]["base"]["error"] == 0
