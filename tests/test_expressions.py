"""Integer expressions and quantities: exact, bounded, and never evaluated by Python itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_sim.errors import ScenarioError
from lifecycle_sim.events import Clock
from lifecycle_sim.program.expressions import evaluate, evaluate_size, evaluate_time, fill

NAMES = {"batch": 4, "seq": 128, "i": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("batch * seq * 4", 2048),
        ("(batch + 1) * -2", -10),
        ("seq // 3 + seq % 3", 44),
        ("-7 // 2", -4),
        ("2**10", 1024),
        ("2**3**2", 512),
        ("(-1)**9223372036854775807", -1),
        ("0**0 + 1**99999999999", 2),
        ("seq / batch", 32),
        ("min(batch, 3, seq) + max(batch, seq)", 131),
        ("ceildiv(seq, 3)", 43),
        ("ceildiv(-7, 2)", -3),
        ("1_000 + i", 1002),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_expressions(text: str, value: int) -> None:
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bach * 4", "unknown parameter 'bach'.*did you mean 'batch'"),
        ("zzz", "known are batch, seq, i"),
        ("batch / 3", "4 / 3 .* is not whole"),
        ("1 // 0", "divides by zero"),
        ("1 % (batch - 4)", "divides by zero"),
        ("ceildiv(1, 0)", "divides by zero"),
        ("ceildiv(1, 2, 3)", "takes two values"),
        ("2**-1", "negative exponent"),
        ("2**63", "too large"),
        ("9**9**9", "too large"),
        ("2**62 * 2 - 1", "too large"),
        ("9223372036854775808", "too large"),
        ("1.5 * batch", "not an integer expression"),
        ("__import__('os')", "not an integer expression"),
        ("batch.bit_length()", "not an integer expression"),
        ("batch if seq else 1", "not an integer expression"),
        ("lambda", "not an integer expression"),
        ("pow(2, 3)", "not an integer expression"),
        ("min()", "not an integer expression"),
        ("min(*batch)", "not an integer expression"),
        ("1 << 3", "not an integer expression"),
        ("[1]", "not an integer expression"),
        ("True", "not an integer expression"),
        ("4 batch", "not an integer expression"),
        ("4batch", "not an integer expression"),
        ("1or 2", "not an integer expression"),
        ("007", "not an integer expression"),
        ("", "not an integer expression"),
        ("(" * 240 + "1" + ")" * 240, "not an integer expression"),
        ("-" * 499 + "1", "not an integer expression|500"),
        ("1+" * 300 + "1", "write at most 500"),
    ],
)
def test_expressions_refused(text: str, says: str) -> None:
    if text.startswith("---"):  # deep, but shallow enough for some interpreters
        try:
            assert evaluate(text, NAMES) == -1
        except ScenarioError:
            return
    else:
        with pytest.raises(ScenarioError, match=says):
            evaluate(text, NAMES)


@given(st.text(alphabet="ab seq i0123456789+-*/%(),._'[]{}", max_size=40))
def test_any_text_is_an_integer_or_one_clear_error(text: str) -> None:
    value, refused = 0, ("one",)
    try:
        value = evaluate(text, NAMES)
    except ScenarioError as error:
        refused = error.problems
    assert abs(value) < 2**63
    assert len(refused) == 1


_LEAF = st.one_of(st.integers(0, 50).map(str), st.sampled_from(sorted(NAMES)))
_TREE = st.recursive(
    _LEAF, lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({' '.join(t)})")
)


@given(_TREE)
def test_arithmetic_is_python_s(text: str) -> None:
    try:
        expected = eval(text, {"__builtins__": {}}, dict(NAMES))
    except ZeroDivisionError:
        expected = None
    if expected is None or len(text) > 500:
        with pytest.raises(ScenarioError):
            evaluate(text, NAMES)
    elif abs(expected) < 2**40:
        assert evaluate(text, NAMES) == expected


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4 MiB", 4 * 2**20),
        ("1.5KiB", 1536),
        ("batch * seq * 4 B", 2048),
        ("(batch + 4) kB", 8000),
        ("batch + 1 MiB", 5 * 2**20),
        ("0 B", 0),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert evaluate_size(text, NAMES) == size


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4", "no unit"),
        ("4G", "GB or GiB"),
        ("batch * seq", "no unit: write for example 'batch \\* seq B'"),
        ("batch * 4 GIB", "unit 'GIB', which is not known; did you mean 'GiB'"),
        ("batch", "no unit"),
        ("(batch - 5) B", "negative"),
        ("-1 KiB", "negative"),
        ("8 EiB", "too large"),
        ("batch * 4 EiB", "too large"),
        ("bach * 4 B", "did you mean 'batch'"),
        ("", "no unit"),
        ("B", "no number before its unit"),
        ("8 MiB * 3", "'MiB' in its midst: .*, write '8 \\* 3 MiB'"),
        ("batch*4KiB * 2", "write 'batch\\*4 \\* 2 KiB'"),
        ("8 MiB + 3", "in its midst: one unit stands last .*, as in"),
        ("8 MiB * 3 KiB", "in its midst: one unit stands last .*, as in"),
        ("2 parsec * 3", "not an integer expression"),
        ("(batch - 5) B", r"\(-1 B with batch = 4\)"),
    ],
)
def test_sizes_refused(text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        evaluate_size(text, NAMES)


def test_times() -> None:
    assert evaluate_time(3, NAMES) == (3, Clock.TICKS)
    assert evaluate_time("3 ticks", NAMES) == (3, Clock.TICKS)
    assert evaluate_time("i * batch ticks", NAMES) == (8, Clock.TICKS)
    assert evaluate_time("1.5 ms", NAMES) == (1_500_000, Clock.NANOSECONDS)
    assert evaluate_time("i * 5 us", NAMES) == (10_000, Clock.NANOSECONDS)
    assert evaluate_time("0", NAMES) == evaluate_time("0 ms", NAMES) == evaluate_time(0, NAMES) == (0, Clock.NONE)
    with pytest.raises(ScenarioError, match="negative"):
        evaluate_time(-1, NAMES)
    with pytest.raises(ScenarioError, match="no unit"):
        evaluate_time("i * batch", NAMES)
    with pytest.raises(ScenarioError, match="no unit"):
        evaluate_time("3", NAMES)


def test_names_are_filled_in() -> None:
    assert fill("layer{i}.out{batch - 1 - i}", NAMES) == "layer2.out1"
    with pytest.raises(ScenarioError, match="brace"):
        fill("layer{i", NAMES)
    with pytest.raises(ScenarioError, match="did you mean 'seq'"):
        fill("layer{sec}", NAMES)
