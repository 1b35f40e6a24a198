"""What a viewer of snapshots does to show an earlier moment: it takes the final state and undoes the events, the last one first."""

from typing import Any

EVENTS_BEFORE_A_CHECK = 7


def walk_back(snapshot: dict[str, Any]) -> None:
    """Undo all events of *snapshot*; fail where there is nothing to undo, or where a block lies in no segment."""
    for device, entries in enumerate(snapshot["device_traces"]):
        segments, blocks = {}, {}
        for segment in snapshot["segments"]:
            if segment["device"] == device:
                segments[segment["address"]] = segment["total_size"]
                blocks |= {block["address"]: block for block in segment["blocks"] if block["state"] != "inactive"}
        pending = {address for address, block in blocks.items() if block["state"] == "active_pending_free"}
        for number, entry in enumerate(reversed(entries)):
            undo(entry, segments, blocks, pending)
            if number % EVENTS_BEFORE_A_CHECK == 0 or number == len(entries) - 1:
                for address in blocks:
                    assert any(start <= address < start + size for start, size in segments.items()), hex(address)


def undo(entry: dict[str, Any], segments: dict[int, int], blocks: dict[int, Any], pending: set[int]) -> None:
    address, size = entry.get("addr"), entry["size"]
    match entry["action"]:
        case "free_completed":
            assert address not in blocks
            blocks[address] = entry
            pending.add(address)
        case "free_requested":
            assert address in pending
            pending.remove(address)
        case "alloc":
            assert address not in pending
            del blocks[address]
        case "segment_free":
            segments[address] = size
        case "segment_alloc":
            assert segments.pop(address) == size
        case "segment_unmap":
            put(segments, address, size)
        case "segment_map":
            start = next(start for start, held in segments.items() if start <= address and address + size <= start + held)
            held = segments.pop(start)
            if start < address:
                segments[start] = address - start
            if address + size < start + held:
                segments[address + size] = start + held - address - size


def put(segments: dict[int, int], address: int, size: int) -> None:
    before = next((start for start, held in segments.items() if start + held == address), None)
    if before is not None:
        size += segments.pop(before)
        address = before
    size += segments.pop(address + size, 0)
    segments[address] = size
