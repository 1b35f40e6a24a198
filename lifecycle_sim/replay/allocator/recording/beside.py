"""Carries out a recording's calls with an allocator beside it, compares each decision, and sets it right where the two part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

import numpy as np

from lifecycle_sim.events import BlockState, Events, Kind, MemoryState, Trace
from lifecycle_sim.events.kinds import GIVES_BACK, TAKES
from lifecycle_sim.events.trace import Int64
from lifecycle_sim.replay.allocator.pools import DEFAULT_POOL
from lifecycle_sim.replay.allocator.recording.calls import Act, Call, Change, calls_of
from lifecycle_sim.replay.allocator.recording.chosen import RecordedSettings
from lifecycle_sim.replay.allocator.recording.comparison import LOST, OUT_OF_MEMORY, PLACEMENT, Tally
from lifecycle_sim.replay.allocator.recording.extents import Extent, Held, extents_of, order_of, settle_claims, tiled
from lifecycle_sim.replay.allocator.recording.following import AstrayError, Follower, RecordedDevice
from lifecycle_sim.replay.allocator.recording.levels import levels_of
from lifecycle_sim.replay.allocator.recording.rebuild import Rebuilt
from lifecycle_sim.replay.allocator.release import Behaviour, TieBreak
from lifecycle_sim.replay.allocator.rounding import SMALL_REQUEST, SMALL_SEGMENT
from lifecycle_sim.replay.allocator.statistics import Levels
from lifecycle_sim.units import format_exact

MOST = 1000
"""After this many differences the comparison ends: the recording is not the work of this allocator under these settings."""


class Beside:
    """An allocator beside a recording.

    Attributes:
        allocator: the allocator; another object after each difference that was set right.
        tally: what agreed and what did not.
        compared: how many events were carried out.
        ties_settled: choices between equal blocks, older than the window, that only the recorded address could settle.
    """

    def __init__(self, trace: Trace, events: Events, start: Rebuilt, chosen: RecordedSettings, partial: bool, size: int | None) -> None:
        self._trace, self._events, self._start, self._chosen, self._partial = trace, events, start, chosen, partial
        self._device = RecordedDevice(size)
        self._extents = extents_of(start.state)
        self._older = {extent.address for extent in self._extents}
        self._given_back: set[int] = set()
        self._by_segment = Behaviour.of(chosen.release).tie_break is TieBreak.SEGMENT
        self._known_order: set[tuple[int, int]] = set()
        self._diverted = 0
        self._block: Int64 = np.zeros(len(events), np.int64)
        self._dropped: list[tuple[int, Held]] = []
        self._unasked: list[int] = []
        self.tally = Tally()
        self.compared = self.ties_settled = 0
        self.allocator = self._begin(start.state)

    def _begin(self, state: MemoryState, order: Sequence[int] | None = None) -> Follower:
        self._diverted = 0
        return Follower.from_state(
            state,
            self._device,
            self._chosen.settings,
            self._chosen.release,
            pools=self._trace.pools,
            order=order,
            reservations=self._start.reservations,
        )

    # ── carrying out ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Carry out every call."""
        block, group = self._block, list[Call]()
        allocator = self.allocator
        malloc, free = allocator.malloc, allocator.free
        size_of, is_live = allocator.block_size, allocator.is_live
        alloc, freed, placed = int(Act.ALLOC), int(Act.FREE), 0
        for call in calls_of(self._events, self._start.pool[: len(self._events)]):
            act, event, _, address, size, stream, pool = call
            if act == alloc and not group and pool == self._diverted:
                try:
                    got = malloc(size, stream)
                except AstrayError as astray:
                    got = None
                    self._astray(event, astray)
                if got == address:
                    placed += 1
                    block[event] = size_of(address)
                    continue
                self._misplaced(call, got)
            elif act == freed and not group and is_live(address):
                block[event] = size_of(address)
                free(address)
                continue
            elif act in (Act.FINISH, Act.CHANGE):
                group.append(call)
                continue
            else:
                self._in_full(call, group)
                group = []
            if self.allocator is not allocator:
                allocator = self.allocator
                malloc, free, size_of, is_live = allocator.malloc, allocator.free, allocator.block_size, allocator.is_live
            if self.tally.differences >= MOST:
                self.compared = event + 1
                break
        else:
            self._between(group, last=True)
            self.compared = len(self._events)
        self.tally.agree(PLACEMENT, placed)

    def _in_full(self, call: Call, group: list[Call]) -> None:
        """Carry out a call of any kind, and what comes before it."""
        if call.act in (Act.ALLOC, Act.OOM):
            self._request(call, group)
            return
        self._between(group)
        if not self.allocator.is_live(call.address):
            self._lost(call, "no block is live there")
            return
        self._block[call.event] = self.allocator.block_size(call.address)
        if call.act == Act.DEFER:
            self.allocator.defer(call.address)
        self.allocator.free(call.address)

    def _between(self, group: list[Call], last: bool = False) -> None:
        """Carry out frees that complete, and changes at the device that no request asks for: memory given back."""
        changes = _changes(group)
        if not changes:
            self._finish(group)
            return
        event = group[-1].event
        self._device.expect(changes)
        self.allocator.mark()
        self._finish(group)
        cut_off = last and self._partial  # the call that all this is part of comes after the last event that was asked for
        if not cut_off and any(change.kind in GIVES_BACK for change in changes):
            self._give_back(changes)
        self._device.expect(())
        predicted = self.allocator.changes()
        self._apply(group, None)
        if cut_off or not self._compare(event, predicted, changes):
            self._set_right(event)

    def _request(self, call: Call, group: list[Call]) -> None:
        """Carry out a request, with the changes at the device that come with it."""
        event, changes = call.event, _changes(group)
        fails = call.act == Act.OOM
        self._device.expect(changes, refuses=fails)
        self.allocator.mark()
        astray, collected = None, list[Change]()
        if not self._completes_in_retry(call, group, changes):
            self._finish(group)
            collected = self._give_back_before(call, changes)
        pool = self._pool_of_failed(call) if fails else call.pool
        self._divert(pool)
        try:
            with self.allocator.limited(limited=fails and not changes and call.address >= self.allocator.grows_by(call.size)):
                got = self.allocator.malloc(call.size, call.stream)
        except AstrayError as error:
            got, astray = None, error
        self._device.expect(())
        self._finish([each for each in group if each.act == Act.FINISH and self.allocator.is_waiting(each.address)])
        predicted = self.allocator.changes()
        self._apply(group, self.allocator.block_size_for(call.size) <= SMALL_REQUEST)
        if astray is not None and astray.size not in [change.size for change in changes]:
            self._astray(event, astray)
        same = self._compare(event, predicted, changes)
        if collected:
            self.tally.told(event, collected if same else [], "garbage collection: its memory limit is not recorded")
        if fails:
            if got is None and same:
                self.tally.agree(OUT_OF_MEMORY)
            else:
                what = f"a block at {got:#x}" if got is not None else "out of memory, but other segments given back"
                self.tally.differ(event, OUT_OF_MEMORY, what, f"{format_exact(call.size)} were refused")
                self._set_right(event, without=got)
        elif same and got == call.address:
            self.tally.agree(PLACEMENT)
            self._block[event] = self.allocator.block_size(got)
        else:
            self._misplaced(call, got, same)

    def _completes_in_retry(self, call: Call, group: list[Call], changes: list[Change]) -> bool:
        """Whether the frees of *group* complete inside the request's own retry: if they had before, the request would have fitted."""
        finishing = any(each.act == Act.FINISH for each in group)
        if not (finishing and changes and changes[0].kind in GIVES_BACK and changes[-1].kind in TAKES) or self._fits(call):
            return False
        for each in group:
            if each.act == Act.FINISH:
                self._block[each.event] = self.allocator.block_size(each.address)
        return True

    def _give_back_before(self, call: Call, changes: list[Change]) -> list[Change]:
        """Give back what was given back before a request obtained memory, or leave it to the request, whose own doing it can be.

        Return what was given back as recorded, without a decision: garbage collection hangs on a memory limit that no recording holds.
        """
        run = list(takewhile(lambda change: change.kind in GIVES_BACK, changes))
        if not run:
            return []
        given, whole = [change.address for change in run if change.kind == Kind.SEGMENT_FREE], self.allocator.whole_segments()
        if len(given) == len(run) and given != whole and set(given) <= set(whole):
            settings = self._chosen.settings
            if settings.max_split_size is not None and not self._fits(call):
                first = self.allocator.first_to_go(call.size, call.stream)
                if first and given[: len(first)] == first:
                    return []
            if settings.garbage_collection_threshold > 0:
                for address in given:
                    self.allocator.release_segment(address)
                return run
        self._give_back(changes)
        return []

    def _pool_of_failed(self, call: Call) -> int:
        """The pool of a request that failed: before 2.12 it is not recorded, so one in which it finds no block."""
        pools = range(len(self._trace.pools))
        if len(pools) == 1 or self._events.pool.any():
            return call.pool
        return next((pool for pool in (self._diverted, *pools) if not self._fits(call._replace(pool=pool))), call.pool)

    def _fits(self, call: Call) -> bool:
        self._divert(call.pool)
        return self.allocator.fits(call.size, call.stream)

    def _give_back(self, changes: Sequence[Change]) -> None:
        """Give back what is whole and free; of private pools only those that the recording empties."""
        pools = [DEFAULT_POOL]
        for change in changes:
            extent = self._extents.holding(change.address)
            if change.kind in GIVES_BACK and extent is not None:
                pools.append(self._trace.pools[extent.pool])
        private = dict.fromkeys(pool for pool in pools[1:] if pool != DEFAULT_POOL)
        self._divert(0)
        for pool in private:
            self.allocator.let_go(pool)
        if pools.count(DEFAULT_POOL) > 1 or not private:
            self.allocator.empty_cache()
        else:
            for pool in private:
                self.allocator.empty_cache(pool)

    def _finish(self, group: Iterable[Call]) -> None:
        """Complete the frees that *group* says are complete."""
        for call in group:
            if call.act != Act.FINISH:
                continue
            size = self.allocator.block_size(call.address)
            if self.allocator.is_waiting(call.address):
                self.allocator.finish(call.address)
            elif self.allocator.is_live(call.address):
                self.allocator.free(call.address)
                self._unasked.append(call.event)
            else:
                self._lost(call, "no block awaits its free there")
            self._block[call.event] = size

    def _divert(self, pool: int) -> None:
        if pool != self._diverted:
            if self._diverted:
                self.allocator.end_pool(self._trace.pools[self._diverted])
            if pool:
                self.allocator.begin_pool(self._trace.pools[pool])
            self._diverted = pool

    # ── differences ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _compare(self, event: int, predicted: Sequence[Change], recorded: Sequence[Change]) -> bool:
        """Compare what changed at the device; an order among equal segments older than the window is believed, for nothing tells it."""
        if len(predicted) == len(recorded) and self._by_segment and predicted != recorded and sorted(predicted) == sorted(recorded):
            pairs = [(ours, theirs) for ours, theirs in zip(predicted, recorded, strict=True) if ours != theirs]
            if all(ours.size == theirs.size and {ours.address, theirs.address} <= self._given_back for ours, theirs in pairs):
                self.ties_settled += len(pairs)
                predicted = recorded
        return self.tally.changes(event, predicted, recorded)

    def _lost(self, call: Call, why: str) -> None:
        self.tally.differ(call.event, LOST, why, f"{Kind(call.kind).name.lower()} of {format_exact(call.size)} at {call.address:#x}")

    def _astray(self, event: int, astray: AstrayError) -> None:
        self.tally.wanted(event, astray.kind, astray.size)

    def _misplaced(self, call: Call, got: int | None, same: bool = True) -> None:
        """Count a request that got another block than recorded, unless nothing could tell the two apart, and place it as recorded.

        *same* tells whether the segments are as recorded.
        """
        stamps = self._tie(call, got)
        if stamps is None:
            predicted = "no block without more memory" if got is None else f"block {got:#x}"
            if got == call.address:
                predicted += ", with other changes at the device"
            self.tally.differ(call.event, PLACEMENT, predicted, f"block {call.address:#x}, {format_exact(call.size)} asked for")
        else:
            self.ties_settled += 1
            self.tally.agree(PLACEMENT)
        if same and stamps is None:
            if got is not None:
                self.allocator.free(got)
            placed = self._placed(call, self.allocator.held_blocks())
            if self.allocator.place(call.address, call.size, placed.size):
                self._block[call.event] = placed.size
                return
            got = None
        self._set_right(call.event, call, got, stamps)

    def _tie(self, call: Call, got: int | None) -> dict[int, float] | None:
        """Return the order of segments, as far as the recording leaves it open, in which the recorded block comes first."""
        if got is None or not self._by_segment:
            return None
        ours, theirs = self._extents.holding(got), self._extents.holding(call.address)
        if ours is None or theirs is None or not {ours.address, theirs.address} <= self._older:
            return None
        if (ours.address, theirs.address) in self._known_order:
            return None
        self.allocator.free(got)
        one, other = self.allocator.free_at(got), self.allocator.free_at(call.address)
        stamps: dict[int, float] = dict(self.allocator.stamps())
        again = self.allocator.malloc(call.size, call.stream)
        if again != got or one is None or other is None or other.address != call.address or one.size != other.size:
            return None
        if one.stream != other.stream or one.pool is not other.pool:
            return None
        self._known_order.add((theirs.address, ours.address))
        first = min(stamp for address, stamp in stamps.items() if ours.address <= address < ours.end)
        return {address: first - 0.5 if theirs.address <= address < theirs.end else stamp for address, stamp in stamps.items()}

    def _set_right(self, event: int, call: Call | None = None, without: int | None = None, stamps: dict[int, float] | None = None) -> None:
        """Begin anew from the recorded segments, with the blocks that are active and the one that *call* got."""
        stamps = stamps or dict(self.allocator.stamps())
        held = [block for block in self.allocator.held_blocks() if block.address != without]
        if call is not None:
            held = [block for block in held if block.address != call.address]
            held.append(self._placed(call, held))
        kept, lost = settle_claims(held, self._extents)
        for block in lost:
            own = call is not None and block.address == call.address
            what = "there is no segment here" if own else f"{format_exact(block.requested)} asked for are live at {block.address:#x}"
            self.tally.differ(event, LOST, what, "an event that the recording lost")
            if not own:
                self._dropped.append((event, block))
        state = tiled(self._extents, kept)
        self.allocator = self._begin(state, order_of(self._extents, stamps))
        if call is not None:
            self._block[event] = self.allocator.block_size(call.address)

    def _placed(self, call: Call, held: Iterable[Held]) -> Held:
        """The block of *call* where the recording has it, with the tail that would not have been split off."""
        size = self.allocator.block_size_for(call.size)
        extent = self._extents.holding(call.address)
        if extent is not None and not extent.small and not self._chosen.settings.expandable_segments:
            end = call.address + size
            next_start = min((block.address for block in held if block.address >= end), default=extent.end)
            gap = min(next_start, extent.end) - end
            size += gap if 0 < gap <= SMALL_REQUEST else 0
        return Held(call.address, size, call.size, BlockState.ALLOCATED, 1)

    def _apply(self, group: Iterable[Call], small_request: bool | None) -> None:
        """Change the recorded segments as *group* says; *small_request* tells the pool of the request that they were obtained for."""
        self._given_back.clear()
        for call in group:
            if call.kind in TAKES:
                expandable = call.kind == Kind.SEGMENT_MAP
                small = call.size == SMALL_SEGMENT
                if expandable:
                    small = self._small(call) if small_request is None else small_request
                self._extents.add(Extent(call.address, call.size, call.stream, call.pool, small, expandable))
                self._older.discard(call.address)
            elif call.kind in GIVES_BACK:
                self._extents.remove(call.address, call.size)
                if call.address in self._older:
                    self._older.discard(call.address)
                    self._given_back.add(call.address)

    def _small(self, call: Call) -> bool:
        state = self.allocator.segment_kind(call.address)
        return call.size % self._chosen.settings.large_segment_size != 0 if state is None else state

    def levels(self) -> Levels:
        """Return the four levels before the first event and after each."""
        return levels_of(self._events, self._start.state, self._block, self._unasked, self._dropped)


def _changes(group: Iterable[Call]) -> list[Change]:
    return [Change(call.kind, call.address, call.size) for call in group if call.act == Act.CHANGE]
