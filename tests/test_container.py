"""Every container gives the same document; none grows without end; what cannot be read is said in one line."""

import base64
import gzip
import io
import json
import pickle
import sys
from types import SimpleNamespace

import pytest

from lifecycle_sim.errors import InputError, SnapshotError, TraceFormatError
from lifecycle_sim.events import Trace
from lifecycle_sim.sources import container
from lifecycle_sim.sources.container import Form, form_of, gunzip, load_document
from lifecycle_sim.sources.detect import read_trace
from tests import eras

DOCUMENT = eras.document()
PICKLE = pickle.dumps(DOCUMENT, 4)

PAGE = """<!DOCTYPE html>
<html><head></head><body><script type="module">
import {add_local_files} from "https://example.org/MemoryViz.js"
const local_files = %s
add_local_files(local_files, 'Active Memory Timeline')
</script></body></html>
"""


def page_of(*pickles: bytes) -> bytes:
    """A page as torch.cuda._memory_viz writes it: one to three NULs follow the pickle."""
    files = [{"name": "snapshot.pickle", "base64": base64.b64encode(p + b"\0" * (3 - len(p) % 3)).decode()} for p in pickles]
    return (PAGE % json.dumps(files)).encode()


CONTAINERS = {
    **{f"protocol {protocol}": pickle.dumps(DOCUMENT, protocol) for protocol in range(6)},
    "gzip": gzip.compress(PICKLE),
    "gzip twice": gzip.compress(gzip.compress(PICKLE)),
    "gzip in two members and padded": gzip.compress(PICKLE[:500]) + gzip.compress(PICKLE[500:]) + b"\0\0",
    "html": page_of(PICKLE),
    "html with one NUL": page_of(pickle.dumps(DOCUMENT, 4)[:-1] + b"."),
    "html with bare keys": page_of(PICKLE).replace(b'"base64"', b"base64").replace(b'"name"', b"name"),
    "html gzipped": gzip.compress(page_of(PICKLE)),
}


@pytest.mark.parametrize("data", CONTAINERS.values(), ids=CONTAINERS)
def test_every_container_gives_the_document(data, tmp_path, monkeypatch):
    assert load_document(data) == DOCUMENT
    path = tmp_path / "file.bin"
    path.write_bytes(data)
    assert load_document(path) == load_document(str(path)) == DOCUMENT
    assert load_document(io.BytesIO(data)) == DOCUMENT
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert load_document("-") == DOCUMENT


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf", b"\n  "])
def test_json_of_the_same_shape_gives_the_same_trace(prefix):
    assert read_trace(prefix + json.dumps(DOCUMENT).encode()) == read_trace(PICKLE)


def test_json_that_only_the_standard_library_reads():
    assert load_document(b'{"a": NaN, "b": "tab\there", "c": "\xff"}')["b"] == "tab\there"


@pytest.mark.parametrize("data", [b"{", b'{"a": 1', b"[1,]", b"[" * 100_000, b"{} x"], ids=["open", "cut", "comma", "deep", "tail"])
def test_bad_json_is_one_line(data):
    with pytest.raises(TraceFormatError, match="not valid JSON") as caught:
        load_document(data)
    assert len(caught.value.problems) == 1


def test_gzip_bombs_are_refused():
    bomb = gzip.compress(b"\x80\x04" + b"\0" * (8 << 20))
    with pytest.raises(TraceFormatError, match="expands to more than 1 MiB"):
        gunzip(bomb, 1 << 20)
    assert len(gunzip(bomb, 9 << 20)) == (8 << 20) + 2


def test_the_bound_on_gzip_counts_from_the_outermost_layer(monkeypatch):
    monkeypatch.setattr(container, "PLAIN_LIMIT", 1 << 20)
    bomb = gzip.compress(gzip.compress(b"\x80\x04" + b"\0" * (8 << 20)))
    with pytest.raises(TraceFormatError, match="expands to more than"):
        read_trace(bomb)


GZIP = gzip.compress(PICKLE)
UNREADABLE = {
    "empty": (b"", "is empty"),
    "three layers": (gzip.compress(gzip.compress(GZIP)), "more than 2 times"),
    "gzip cut": (GZIP[:-20], "cut off"),
    "gzip flipped": (GZIP[:60] + bytes([GZIP[60] ^ 255]) + GZIP[61:], "damaged"),
    "gzip with junk": (GZIP + b"junk", "follow the gzip data"),
    "gzip of nothing": (gzip.compress(b""), "is empty"),
    "noise": (bytes(range(7, 200)), "no format that is known"),
    "zeros": (b"\0" * 100, "no format that is known"),
    "toml": (b"name = 'x'\n", "no format that is known"),
    "plain page": (b"<html></html>", "holds none"),
    "old page": (b"<html><script>let alloc_data = {}</script></html>", "old viewer"),
    "picture": (b"<html><img src='data:image/png;base64,AAAA'></html>", "only a picture"),
    "two snapshots": (page_of(PICKLE, PICKLE), "with 2 memory snapshots"),
    "bad base64": (b'<html>"base64": "AAA"</html>', "damaged"),
    "json of another kind": (b'{"name": [1, 2]}', "JSON in no format that is known"),
    "json list": (b"[1, 2]", "JSON in no format that is known"),
    "pickle of another kind": (pickle.dumps({"allocated_bytes.all.current": 1}), "no memory snapshot"),
}


@pytest.mark.parametrize(("data", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_is_one_line_with_the_name(data, why, tmp_path):
    path = tmp_path / "some file"
    path.write_bytes(data)
    with pytest.raises(InputError, match=why) as caught:
        read_trace(path)
    (line,) = caught.value.problems
    assert line.startswith(f"{path}: ")
    assert line.isprintable()


def test_paths_that_cannot_be_read(tmp_path):
    for path, why in ((tmp_path, "directory"), (tmp_path / "none", "no such file"), ("a\0b", "NUL"), ("x" * 5000, "cannot be read")):
        with pytest.raises(TraceFormatError, match=why):
            read_trace(path)


def test_an_endless_source_of_nothing_known_is_not_read_on():
    class Endless(io.RawIOBase):
        def read(self, size=-1):
            assert 0 < size <= container.HEAD, "read on"
            return b"\0" * size

    with pytest.raises(TraceFormatError, match="no format"):
        read_trace(Endless())


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (b"PK\x03\x04", Form.ZIP),
        (b"id,lower,upper,size\n", Form.CSV),
        (b"\xef\xbb\xbfid, lower, upper, size\r\n", Form.CSV),
        (b'{"schema": "lifecycle-sim/trace/1", "devices": []}\n{}', Form.JSON_LINES),
        (b'{"schema": "another"}\n{}', Form.JSON),
        (b"(dp0\n", Form.PICKLE),
        (b"}q\x00.", Form.PICKLE),
        (b"cposix\nsystem\n", Form.PICKLE),
        (b"  <!DOCTYPE html>", Form.HTML),
    ],
)
def test_forms(head, form):
    assert form_of(head) is form


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"PK\x03\x04rest", "x", ("native", "read_npz", (b"PK\x03\x04rest",))),
        (b'{"schema": "lifecycle-sim/trace/1"}\n', "x", ("native", "read_jsonl", (b'{"schema": "lifecycle-sim/trace/1"}\n',))),
        (b"id,lower,upper,size\n", "A.1048576.csv", ("minimalloc", "read_minimalloc", ("id,lower,upper,size\n", 1048576))),
        (gzip.compress(b"id,lower,upper,size\n"), "a.csv", ("minimalloc", "read_minimalloc", ("id,lower,upper,size\n", None))),
        (b'{"traceEvents": []}', "x", ("profiler", "read_profiler", ({"traceEvents": []},))),
        (b'[{"ph": "i"}]', "x", ("profiler", "read_profiler", ([{"ph": "i"}],))),
        (b"[[-1, 1, 4, 0]]", "x", ("memory_timeline", "read_memory_timeline", ([[-1, 1, 4, 0]],))),
    ],
    ids=["npz", "jsonl", "csv", "csv.gz", "profiler", "events", "timeline"],
)
def test_each_content_goes_to_its_reader(data, name, expected, tmp_path, monkeypatch):
    from lifecycle_sim.sources import detect

    calls = []
    monkeypatch.setattr(detect, "_reader", lambda module, function: lambda *given: calls.append((module, function, given)))
    (tmp_path / name).write_bytes(data)
    read_trace(tmp_path / name)
    assert calls == [expected]


def test_a_bare_list_of_segments_is_told_from_other_lists():
    trace = read_trace(json.dumps([eras.segment()]).encode())
    assert isinstance(trace, Trace)
    assert trace.device(0).final.reserved == eras.SEGMENT


def test_problems_keep_their_class():
    with pytest.raises(SnapshotError, match=r"^input: segments: is None"):
        read_trace(pickle.dumps({"segments": None}))
