"""The facts of ``lifecycle-sim params`` as records."""

from __future__ import annotations

from lifecycle_sim.output.summary import Record
from lifecycle_sim.sources.capture import ParameterTable, StorageRow


def params_document(source: str, table: ParameterTable) -> Record:
    """Return the versioned document that ``params`` answers with: rows by storage, and the totals. All bytes are payload."""
    return {
        "schema": "lifecycle-sim/params/1",
        "source": {"name": source, "model": table.model, "optimizers": list(table.optimizer)},
        "basis": "payload",
        "parameters": {
            "storages": sum(not row.buffer for row in table.rows),
            "elements": table.elements,
            "bytes": table.size,
        },
        "buffers": {"storages": sum(row.buffer for row in table.rows), "bytes": table.buffers},
        "by_name": table.by_name,
        "gradients": table.gradients,
        "optimizer_state": {"bytes": table.state, "own": table.own, "keys": [{"key": k, "bytes": v} for k, v in table.by_key.items()]},
        "counters": table.counters,
        "total": table.total,
        "shown": [_row(row) for row in table.rows],
    }


def _row(row: StorageRow) -> Record:
    return {
        "names": list(row.names),
        "references": row.references,
        "objects": row.objects,
        "shape": list(row.shape),
        "dtype": row.dtype,
        "elements": row.elements,
        "bytes": row.size,
        "trainable": row.trainable,
        "buffer": row.buffer,
        "gradient": row.gradient,
        "optimizer_state": row.state,
    }
