"""The native formats of a Trace: JSON lines to read and write by hand, and ``.npz`` columns for speed.

Writing a trace and reading it back gives an equal trace, in either format, and the same trace always gives the same bytes. Both are
described in docs/formats.md.
"""

from lifecycle_sim.sources.native.columns import read_npz, write_npz
from lifecycle_sim.sources.native.reader import read_jsonl
from lifecycle_sim.sources.native.writer import write_jsonl

__all__ = ["read_jsonl", "read_npz", "write_jsonl", "write_npz"]
