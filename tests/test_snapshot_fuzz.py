"""Mutated snapshots are read or refused in plain lines; nothing crashes. ``benchmarks/fuzz_snapshots.py`` does the same at length."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from fuzz_snapshots import Fuzzer, answer, documents

from lifecycle_sim.sources.detect import read_trace


@pytest.mark.parametrize("seed", range(3))
def test_mutated_snapshots_are_read_or_refused(seed):
    outcomes = Counter()
    for how, data in Fuzzer(documents(None), seed).cases(300):
        outcome = answer(read_trace, data)
        assert outcome in ("valid", "refused"), f"{how}:\n{outcome}"
        outcomes[outcome] += 1
    assert min(outcomes["valid"], outcomes["refused"]) > 20


def test_a_crash_and_an_unclear_message_are_told():
    from lifecycle_sim.errors import InputError

    def crash(data):
        raise KeyError("x")

    def mutter(data):
        raise InputError("two\nlines")

    assert "KeyError" in answer(crash, b"")
    assert "unclear" in answer(mutter, b"")


@pytest.mark.parametrize("name", ["hostile_p0", "hostile_p2", "hostile_p4"])
def test_hostile_pickles_are_refused(shared, tmp_path, name):
    import subprocess

    from lifecycle_sim.errors import UnsafePickleError

    made = subprocess.run(
        [sys.executable, str(shared / "tools" / "make_cases.py"), str(tmp_path), "--events", "100", "--only", "hostile"],
        check=True,
        capture_output=True,
    )
    assert b"HOSTILE_CODE_RAN" in made.stdout
    with pytest.raises(UnsafePickleError, match=r"posix\.mkdir|nt\.mkdir"):
        read_trace(tmp_path / f"{name}.pickle")
    assert not (tmp_path / "HOSTILE_CODE_RAN").exists()
