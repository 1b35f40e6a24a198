"""Options strings, releases and recorded settings."""

import pytest

from lifecycle_sim.errors import InputError, SnapshotError
from lifecycle_sim.replay.allocator import AllocatorSettings, Release, parse_options, settings_from_snapshot

MIB = 1 << 20


def test_an_options_string_in_pytorchs_syntax() -> None:
    text = "expandable_segments:True, max_split_size_mb:128,garbage_collection_threshold:0.6,pinned_use_cuda_host_register:True"
    assert parse_options(text) == AllocatorSettings(max_split_size=128 * MIB, garbage_collection_threshold=0.6, expandable_segments=True)
    assert parse_options("") == parse_options("backend:native") == AllocatorSettings()
    assert parse_options("max_split_size_mb:30,max_split_size_mb:40").max_split_size == 40 * MIB
    assert parse_options("large_segment_size_mb:25").non_split_rounding == 25 * MIB


@pytest.mark.parametrize(
    ("text", "release", "message"),
    [
        ("expandable_segment:True", "2.13", "did you mean 'expandable_segments'"),
        ("nonsense:1", "2.13", "the keys are backend"),
        ("expandable_segments:true", "2.13", "must be True or False"),
        ("expandable_segments:True", "2.0", "came with 2.1"),
        ("max_non_split_rounding_mb:64", "2.5", "came with 2.6"),
        ("large_segment_size_mb:32", "2.10", "came with 2.11"),
        ("throw_on_cudamalloc_oom:True", "2.11", "came with 2.12"),
        ("max_split_size_mb:20", "2.9", "more than 20"),
        ("max_split_size_mb:19", "2.10", "at least 20"),
        ("max_split_size_mb:30,large_segment_size_mb:32", "2.11", "at least 32"),
        ("large_segment_size_mb:10", "2.11", "more than 10"),
        ("max_split_size_mb:many", "2.13", "whole number"),
        ("max_split_size_mb:", "2.13", "cannot be empty"),
        ("max_split_size_mb", "2.13", "expected key:value"),
        ("max_split_size_mb:32 expandable_segments:True", "2.13", "expected a comma"),
        ("garbage_collection_threshold:1", "2.13", "between 0 and 1"),
        ("garbage_collection_threshold:high", "2.13", "must be a number"),
        ("per_process_memory_fraction:1.5", "2.13", "between 0 and 1"),
        ("backend:cudaMallocAsync", "2.13", "only the native allocator"),
        ("roundup_power2_divisions:3", "2.13", "power of two"),
        ("roundup_power2_divisions:0", "2.3", "power of two"),
        ("roundup_power2_divisions:[256:4", "2.13", "not closed"),
        ("roundup_power2_divisions:[256:4,]", "2.13", "list like"),
        ("roundup_power2_divisions:[100:4]", "2.13", "100 must be a power of two"),
        ("roundup_power2_divisions:[]", "2.13", "list like"),
        ("max_split_size_mb:[32]", "2.13", "one value"),
        (":", "2.13", "expected key:value"),
    ],
)
def test_what_cannot_be_accepted_is_said(text: str, release: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        parse_options(text, release)


def test_all_problems_are_listed_at_once() -> None:
    with pytest.raises(InputError) as error:
        parse_options("expandable_segments:yes,garbage_collection_threshold:2,unknown_key:1")
    assert len(error.value.problems) == 3


#   entry       0  1  2  3  4  …                 entry i holds for [2^i, 2^(i+1)) MiB
#   [2:4,8:1]   4  4  0  1  0  …                 the first pair also fills what is below; gaps stay 0
@pytest.mark.parametrize(
    ("value", "release", "table"),
    [
        ("4", "2.13", [4] * 16),
        ("0", "2.4", [0] * 16),
        ("[2:4,8:1]", "2.13", [4, 4, 0, 1] + [0] * 12),
        ("[1:1,2:2,>:8]", "2.10", [1, 2] + [8] * 14),
        ("[1:1,2:2,>:8]", "2.9", [1] + [8] * 15),
        ("[>:2]", "2.10", [0] + [2] * 15),
        ("[>:2]", "2.9", [2] * 16),
        ("[65536:2]", "2.13", [2] * 16),
        ("[64 : 2 , > : 4]", "2.13", [2] * 7 + [4] * 9),
    ],
)
def test_division_tables(value: str, release: str, table: list[int]) -> None:
    assert list(parse_options(f"roundup_power2_divisions:{value}", release).roundup_power2_divisions) == table


def test_a_call_at_run_time_resets_some_settings_and_keeps_others() -> None:
    text = "expandable_segments:True,large_segment_size_mb:32,max_split_size_mb:64,max_non_split_rounding_mb:40,roundup_power2_divisions:4"
    before = parse_options(text)
    after = parse_options("garbage_collection_threshold:0.5", onto=before)
    assert after == AllocatorSettings(expandable_segments=True, large_segment_size=32 * MIB, garbage_collection_threshold=0.5)
    old = AllocatorSettings(max_non_split_rounding=40 * MIB, max_split_size=64 * MIB)
    assert parse_options("", "2.9", onto=old) == AllocatorSettings(max_non_split_rounding=40 * MIB)
    with pytest.raises(InputError, match="at least 32"):
        parse_options("max_split_size_mb:30", onto=before)


def test_settings_of_a_snapshot() -> None:
    recorded = {
        "PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:32",
        "max_split_size": -1,
        "garbage_collection_threshold": 0.5,
        "expandable_segments": True,
        "roundup_power2_divisions": {str(1 << i): i % 2 for i in range(16)},
    }
    assert settings_from_snapshot(recorded) == AllocatorSettings(
        garbage_collection_threshold=0.5,
        expandable_segments=True,
        large_segment_size=32 * MIB,
        roundup_power2_divisions=(0, 1) * 8,
    )
    assert settings_from_snapshot({"max_split_size": 64 * MIB}).max_split_size == 64 * MIB
    assert settings_from_snapshot({}) == AllocatorSettings()
    for damaged in ({"max_split_size": None}, {"roundup_power2_divisions": [1]}, {"max_split_size": "many"}):
        with pytest.raises(SnapshotError, match="allocator_settings"):
            settings_from_snapshot(damaged)


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="16"):
        AllocatorSettings(roundup_power2_divisions=(1, 2))


def test_releases() -> None:
    assert Release.parse("2.9") < Release.parse("2.10.1") < Release.parse("2.14.1+cu130")
    assert Release.parse("2.14+") == Release.parse("v2.14") == Release(2, 14)
    assert str(Release.parse("2.5-2.7")) == "2.5"
    for text in ("latest", "2", "2.x", ""):
        with pytest.raises(InputError, match="not a PyTorch release"):
            Release.parse(text)
    with pytest.raises(InputError, match="not modelled"):
        Release.parse("1.13")
