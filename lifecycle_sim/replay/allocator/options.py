"""The options string of ``PYTORCH_CUDA_ALLOC_CONF``: its grammar, its keys, and the releases that know them.

    options  =  [ key ":" value  { "," key ":" value } ]
    value    =  word  |  "[" ( number | ">" ) ":" number  { "," … } "]"

Blanks are ignored; of a repeated key the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lifecycle_sim.errors import InputError
from lifecycle_sim.replay.allocator.release import Behaviour, Release
from lifecycle_sim.replay.allocator.rounding import DIVISION_ENTRIES, LARGE_SEGMENT
from lifecycle_sim.spelling import closest

MIB = 1 << 20
Words = list[str]
Reader = Callable[[Words, Behaviour], Any]

_TOKEN = re.compile(r"[,:\[\]]|[^,:\[\]\s]+")


class _RefusedError(Exception):
    """A value that an option does not take; the message says what it must be."""


def read_options(text: str, release: Release, large_segment: int = LARGE_SEGMENT) -> dict[str, Any]:
    """Return the options that *text* sets, by key: sizes in bytes, the divisions as 16 entries.

    *large_segment* is the size of large segments in force; it is the least that the split bounds may be.

    Raises:
        InputError: unknown or unavailable keys, values out of bounds, or a string that breaks the grammar; one line for each problem.
    """
    behaviour = Behaviour.of(release)
    options: dict[str, Any] = {}
    problems: list[str] = []
    for key, words in _pairs(text, problems):
        option = OPTIONS.get(key)
        if option is None:
            close = closest(key, OPTIONS)
            hint = f"did you mean {close!r}?" if close else f"the keys are {', '.join(sorted(OPTIONS))}"
            problems.append(f"allocator option {key!r} is not known: {hint}")
        elif release < option.since:
            problems.append(f"allocator option {key!r} is not in PyTorch {release}: it came with {option.since}")
        else:
            try:
                options[key] = option.read(words, behaviour)
            except _RefusedError as refused:
                problems.append(f"allocator option {key!r} cannot be {''.join(words) or 'empty'}: {refused}")
    problems += _out_of_bounds(options, release, large_segment)
    if problems:
        raise InputError(problems)
    return options


def _pairs(text: str, problems: list[str]) -> Iterator[tuple[str, Words]]:
    """Yield each key with the words of its value; the words of a list include its brackets."""
    words = _TOKEN.findall(text)
    at = 0
    while at < len(words):
        key, colon = words[at], words[at + 1 : at + 2]
        if key == ",":
            at += 1
            continue
        if key in ":[]" or colon != [":"]:
            problems.append(f"allocator options {text!r}: expected key:value at {key!r}")
            return
        at += 2
        end = at
        if words[at : at + 1] == ["["]:
            if "]" not in words[at:]:
                problems.append(f"allocator option {key!r}: its list is not closed by ]")
                return
            end = words.index("]", at)
        yield key, [] if words[at : at + 1] == [","] else words[at : end + 1]
        at = end + (words[at : at + 1] != [","])
        if words[at : at + 1] not in ([], [","]):
            problems.append(f"allocator options {text!r}: expected a comma before {words[at]!r}")
            return


def _out_of_bounds(options: dict[str, Any], release: Release, large_segment: int) -> Iterator[str]:
    """Yield a problem for each split bound that is below the size of large segments."""
    behaviour = Behaviour.of(release)
    bound = options.get("large_segment_size_mb", large_segment)
    for key in ("max_split_size_mb", "max_non_split_rounding_mb"):
        size = options.get(key)
        if size is not None and (size < bound or (size == bound and behaviour.split_bound_is_open)):
            least = f"more than {bound // MIB}" if behaviour.split_bound_is_open else f"at least {bound // MIB}"
            yield f"allocator option {key!r} cannot be {size // MIB}: it must be {least} in PyTorch {release}"


def _one(words: Words) -> str:
    if len(words) != 1:
        raise _RefusedError("it takes one value")
    return words[0]


def _flag(words: Words, _: Behaviour) -> bool:
    if _one(words) not in ("True", "False"):
        raise _RefusedError("it must be True or False")
    return words[0] == "True"


def _number(words: Words, _: Behaviour) -> int:
    if not (word := _one(words)).isdecimal():
        raise _RefusedError("it must be a whole number")
    return int(word)


def _mebibytes(words: Words, behaviour: Behaviour) -> int:
    return _number(words, behaviour) * MIB


def _large_segment(words: Words, behaviour: Behaviour) -> int:
    if (size := _mebibytes(words, behaviour)) <= 10 * MIB:
        raise _RefusedError("it must be more than 10")
    return size


def _real(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise _RefusedError("it must be a number") from None


def _threshold(words: Words, _: Behaviour) -> float:
    if not 0 < (value := _real(_one(words))) < 1:
        raise _RefusedError("it must lie between 0 and 1, both excluded")
    return value


def _fraction(words: Words, _: Behaviour) -> float:
    if not 0 <= (value := _real(_one(words))) <= 1:
        raise _RefusedError("it must lie between 0 and 1")
    return value


def _backend(words: Words, _: Behaviour) -> str:
    if _one(words) != "native":
        raise _RefusedError("only the native allocator is modelled; leave it out or write native")
    return "native"


def _power_of_two(word: str, zero: bool = False) -> int:
    if not word.isdecimal() or int(word) & (int(word) - 1) or (int(word) == 0 and not zero):
        raise _RefusedError(f"{word} must be a power of two")
    return int(word)


def _divisions(words: Words, behaviour: Behaviour) -> tuple[int, ...]:
    """Read ``N`` or ``[k:v,…,>:v]``: k in MiB names the entry of [k, 2k); the first pair also fills what is below, ``>`` what is above."""
    if words[:1] != ["["]:
        return (_power_of_two(_one(words), behaviour.zero_divisions),) * DIVISION_ENTRIES
    inner = words[1:-1]
    pairs = [inner[i : i + 4] for i in range(0, len(inner), 4)]
    if not inner or any(len(pair) < 3 or pair[1] != ":" or pair[3:] not in ([], [","]) for pair in pairs) or len(pairs[-1]) == 4:
        raise _RefusedError("it must be a number or a list like [256:1,512:2,>:4]")
    table = [0] * DIVISION_ENTRIES
    last = 0
    for first, (bound, _colon, word, *_comma) in zip((True, *[False] * len(pairs)), pairs, strict=False):
        count = _power_of_two(word, behaviour.zero_divisions)
        if bound == ">":
            start = last if behaviour.fill_overwrites_last else last + 1
            table[start:] = [count] * (DIVISION_ENTRIES - start)
        else:
            last = min(_power_of_two(bound).bit_length() - 1, DIVISION_ENTRIES - 1)
            table[0 if first else last : last + 1] = [count] * (last + 1 if first else 1)
    return tuple(table)


@dataclass(frozen=True)
class Option:
    """A key of the options string: the first release that has it, and how its value is read."""

    since: Release
    read: Reader


def _since(minor: int, reader: Reader, *keys: str) -> dict[str, Option]:
    return {key: Option(Release(2, minor), reader) for key in keys}


OPTIONS: dict[str, Option] = (
    _since(0, _backend, "backend")
    | _since(0, _mebibytes, "max_split_size_mb")
    | _since(0, _threshold, "garbage_collection_threshold")
    | _since(0, _divisions, "roundup_power2_divisions")
    | _since(1, _flag, "expandable_segments")
    | _since(2, _flag, "release_lock_on_cudamalloc", "pinned_use_cuda_host_register")
    | _since(2, _number, "pinned_num_register_threads")
    | _since(6, _flag, "pinned_use_background_threads")
    | _since(6, _mebibytes, "max_non_split_rounding_mb")
    | _since(9, _flag, "graph_capture_record_stream_reuse")
    | _since(10, _fraction, "per_process_memory_fraction")
    | _since(10, _number, "pinned_reserve_segment_size_mb")
    | _since(11, _large_segment, "large_segment_size_mb")
    | _since(12, _flag, "throw_on_cudamalloc_oom", "pinned_free_catch_all")
    | _since(13, _number, "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb")
)
"""Every key; those about pinned host memory and about locks have no effect on placement."""
