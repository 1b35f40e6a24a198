"""Records two steps of a small GPT on a CUDA device with the allocator's snapshot, and writes what the join of the two is tested on.

python tests/gpu/record_joined.py tests/data/joined_recording.json.gz
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import lifecycle_sim as ls  # noqa: E402
from lifecycle_sim.sources.capture import recording  # noqa: E402
from tests.capture_models import Gpt, tokens  # noqa: E402

LEFT_OUT = ("frames", "time_us")
STEPS = 2


def without_stacks(value: Any) -> Any:
    """Return the snapshot *value* without stacks and times."""
    if isinstance(value, dict):
        return {key: without_stacks(inner) for key, inner in value.items() if key not in LEFT_OUT}
    return [without_stacks(inner) for inner in value] if isinstance(value, list) else value


def main(path: str) -> None:
    """Record, join, write."""
    torch.backends.cudnn.enabled = False
    seen: dict[str, Any] = {}
    take, join = recording._taken, recording.join

    def taken() -> Any:
        seen["document"] = take()
        return seen["document"]

    def joined(ledger: Any, before: int, snapshot: Any, device: str) -> Any:
        seen["ledger"], seen["before"] = ledger, before
        return join(ledger, before, snapshot, device)

    recording._taken, recording.join = taken, joined
    model = Gpt("newer").cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        ids, targets = tokens()
        model(ids.cuda(), targets.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    torch.cuda.reset_peak_memory_stats()
    with ls.record(model, optimizer, snapshot=True) as recorded:
        for _ in range(STEPS):
            step()
            recorded.step()
    stats = torch.cuda.memory_stats()
    ledger = seen["ledger"]
    pair = {
        "made": f"torch {torch.__version__} on {torch.cuda.get_device_name(0)}",
        "snapshot": {part: without_stacks(seen["document"][part]) for part in ("segments", "device_traces")},
        "storages": [
            [
                each.size,
                each.operator,
                each.pointer,
                each.born,
                each.died,
                each.category and int(each.category),
                each.name,
                each.where.phase.name,
            ]
            for each in ledger.storages
        ],
        "events": ledger.events,
        "phases": [phase.name for phase in ledger.phases],
        "backwards": ledger.backwards,
        "before": seen["before"],
        "peak": stats["requested_bytes.all.peak"],
        "end": stats["requested_bytes.all.current"],
    }
    Path(path).write_bytes(gzip.compress(json.dumps(pair).encode(), 9, mtime=0))
    print(recorded.allocator)


if __name__ == "__main__":
    main(sys.argv[1])
