"""Makes torch214_stub_train_gap.pickle: the training run of torch214_stub_train.pickle as a recording that lost events.

It begins mid-run, as a ring buffer leaves it, and was off for a while in the second step, over the peak. The truth is in the whole
recording: start 332,022,856 B, peak 768,772,392 B. Run from the project's root: ``python -m scenarios.make_gap``.
"""

from __future__ import annotations

import pickle
from pathlib import Path

HERE = Path(__file__).parent
BEGINS, OFF, ON = 600, 1200, 1400
"""The recording begins with this event, and lacks the events from OFF to below ON."""


def main() -> None:
    """Write the cut recording beside the whole one."""
    document = pickle.loads((HERE / "torch214_stub_train.pickle").read_bytes())
    events = document["device_traces"][0]
    document["device_traces"][0] = events[BEGINS:OFF] + events[ON:]
    (HERE / "torch214_stub_train_gap.pickle").write_bytes(pickle.dumps(document, protocol=4))


if __name__ == "__main__":
    main()
