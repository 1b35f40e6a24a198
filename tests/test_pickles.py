"""The restricted unpickler gives plain data, refuses everything else in one line, and leaves the process as it found it."""

import collections
import contextlib
import copyreg
import gc
import os
import pickle
import struct
import subprocess
import sys

import pytest

from lifecycle_sim.errors import SnapshotError, UnsafePickleError
from lifecycle_sim.sources.guards import collector_paused, memory_bounded
from lifecycle_sim.sources.pickles import load_pickle

PLAIN = {"a": [1, -1, 1 << 70, 1.5, True, None, "ü", (1, 2), {"b": []}], "deep": [[[[]]]]}


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_of_every_protocol_is_read(protocol):
    assert load_pickle(pickle.dumps(PLAIN, protocol)) == PLAIN


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0", b"junk"])
def test_what_follows_the_stop_is_ignored(tail):
    assert load_pickle(pickle.dumps(PLAIN) + tail) == PLAIN


class Calls:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [os.mkdir, eval, collections.OrderedDict], ids=lambda f: f.__name__)
def test_globals_are_refused_by_name_and_nothing_runs(protocol, function, tmp_path):
    target = tmp_path / "made"
    data = pickle.dumps({"segments": [Calls(function, str(target))] if function is os.mkdir else [Calls(function)]}, protocol)
    with pytest.raises(UnsafePickleError, match=function.__name__) as caught:
        load_pickle(data)
    assert len(caught.value.problems) == 1
    assert not target.exists()


def test_a_cached_extension_code_is_refused():
    copyreg.add_extension("collections", "OrderedDict", 0xE7)
    try:
        data = pickle.dumps(collections.OrderedDict, 2)
        assert b"\x82\xe7" in data, "the pickle must use the extension code"
        assert pickle.loads(data) is collections.OrderedDict  # fills the cache, which the unpickler asks before find_class
        with pytest.raises(UnsafePickleError, match=r"collections\.OrderedDict"):
            load_pickle(data)
    finally:
        copyreg.remove_extension("collections", "OrderedDict", 0xE7)


@pytest.mark.parametrize(
    ("data", "asked"),
    [(b"Pfile 7\n.", "file 7"), (b"\x80\x02K\x07Q.", "7"), (b"\x80\x05\x97.", "out-of-band"), (b"(S'x'\nios\nsystem\n.", "os.system")],
    ids=["persistent id", "binary persistent id", "buffer", "inst"],
)
def test_other_ways_out_are_refused(data, asked):
    with pytest.raises(UnsafePickleError, match=asked):
        load_pickle(data)


DAMAGED = {
    "empty": b"",
    "cut off": pickle.dumps(PLAIN)[:-5],
    "pop from nothing": b"0.",
    "stop without value": b".",
    "unknown opcode": b"\x80\x04\xff.",
    "unknown protocol": b"\x80\x09N.",
    "unknown memo": b"h\x09.",
    "key without value": b"}(Ns.",
    "list as key": b"}]Ns.",
    "append to a number": b"K\x01K\x02a.",
    "state of a number": b"K\x01}b.",
    "surrogate in latin": b"S'\xff'\n.",
    "text for an integer": b"Ix\n.",
    "very long integer": b"I" + b"9" * 10_000 + b"\n.",
    "unregistered extension": b"\x80\x02\x82\xfe.",
    "negative length": b"\x80\x02\x8b\xff\xff\xff\xff.",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_one_line(data):
    with pytest.raises(SnapshotError) as caught:
        load_pickle(data)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].isprintable()
    assert caught.value.__cause__ is None


BOMBS = {
    "memo index": b"N" + b"r" + struct.pack("<I", 0xFFFFFFF0) + b".",
    "memo index of 3 GB": b"N" + b"r" + struct.pack("<I", 0x0C000000) + b".",
    "bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 46) + b"x.",
    "text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 46) + b"x.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 46) + b"x.",
    "impossible bytearray": b"\x80\x05\x96" + struct.pack("<Q", (1 << 63) - 64) + b"x.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the memory a process takes is bounded on Linux only")
@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_a_small_file_cannot_take_much_memory(data, capfd):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SnapshotError) as caught:
        load_pickle(data)
    assert len(caught.value.problems) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_500_000  # kB
    assert resource.getrlimit(resource.RLIMIT_AS) == limits
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("data", [pickle.dumps(PLAIN), b"0.", pickle.dumps(Calls(len))], ids=["good", "damaged", "unsafe"])
def test_the_collector_is_left_as_it_was(on, data):
    was_on = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with contextlib.suppress(SnapshotError):
            load_pickle(data)
        assert gc.isenabled() is on
        with collector_paused(), collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_a_lower_limit_is_respected():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    lower = 1 << 38
    resource.setrlimit(resource.RLIMIT_AS, (lower, hard))
    try:
        with memory_bounded(1 << 40):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] <= lower
        assert resource.getrlimit(resource.RLIMIT_AS) == (lower, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.skipif(sys.platform != "linux", reason="stacks of any size are a matter of Linux")
def test_a_key_nested_a_million_deep_does_not_end_the_process():
    script = (
        "from lifecycle_sim.sources.detect import read_trace\n"
        "from lifecycle_sim.errors import InputError\n"
        "for data in (b'\\x80\\x04}N' + b'\\x85' * 10**6 + b'Ns.', b'\\x80\\x04' + b']' * 10**6 + b'a' * (10**6 - 1) + b'.'):\n"
        "    try: read_trace(data)\n"
        "    except InputError as error: print(len(error.problems))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1\n1\n"), done.stderr
