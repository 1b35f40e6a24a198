"""One recomputation of a checkpointed call: its marks gone through again, up to where it stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle_sim.program.remat.frames import Frame, Key
from lifecycle_sim.program.step_graph import NO_STORAGE, Mark

if TYPE_CHECKING:
    from lifecycle_sim.program.remat.editing import Run

UNDER_AUTOCAST = "its backward pass runs under autocast, which still keeps casts of the forward pass: leave autocast before backward()"


class Again:
    """One recomputation of a call.

    Args:
        run: the run of the step.
        frame: the call.
        outside: copies that stand for its inputs, by storage; other storages of the step are themselves.
        found: where to put what autograd saves, by key.
    """

    def __init__(self, run: Run, frame: Frame, outside: dict[int, int | None], found: dict[Key, int | None]) -> None:
        self._run, self._frame, self._outside, self._found = run, frame, outside, found
        self._now: dict[int, int] = {}
        self._until_end: list[int] = []
        self._reused: dict[int, int] = {}
        self._skipping = False
        self._count = 0
        self._workspace: int | None = None
        self._writes: tuple[int, ...] = ()

    def go(self) -> None:
        """Run it up to where it stops, and let all go that nobody holds then."""
        self._marks()
        self._take_workspace()
        for storage in (*self._now.values(), *self._until_end, *self._reused.values()):
            self._run.account.drop(storage)

    def _marks(self) -> None:
        graph, account = self._run.graph, self._run.account
        inner: list[int] = []
        last = self._frame.total if self._run.early_stop else -1
        for position in range(self._frame.start + 1, self._frame.stop):
            kind, value = graph.kinds[position], graph.values[position]
            if self._workspace is not None and not (kind == Mark.ALLOC and value in self._writes):
                self._take_workspace()
            if kind == Mark.OPERATOR:
                self._operator(value)
            elif kind == Mark.ALLOC:
                self._alloc(value)
            elif kind == Mark.FREE:
                account.drop(self._now.pop(value, None))
            elif kind == Mark.CAST:
                self._cast_again(value)
            elif kind == Mark.SAVE and not inner:
                self._save(value, self._run.storage(value))
            elif kind == Mark.ENTER and value in self._run.calls:
                call = graph.calls[value]
                for place, storage in enumerate(call.inputs):
                    if not inner:
                        self._save((value, place), None if storage == NO_STORAGE else storage)
                        if self._count == last:
                            return
                for storage in call.others:
                    if storage in self._now:
                        account.hold(self._now[storage])
                        self._until_end.append(self._now[storage])
                inner.append(value)
            elif kind == Mark.LEAVE and inner and inner[-1] == value:
                inner.pop()
            elif kind in (Mark.UNPACK, Mark.BACKWARD):
                raise self._run.refused(self._frame, "a backward pass runs in it")
            if self._count == last:
                return

    def _operator(self, number: int) -> None:
        run, account = self._run, self._run.account
        row = run.graph.operators[number]
        kept = self._frame.kept.pop(number, None)
        self._skipping = kept is not None
        if kept is not None:
            self._take_kept(number, kept)
            return
        if row.cached_cast and not run.gone.issuperset(row.writes):
            raise run.refused(self._frame, UNDER_AUTOCAST)
        for storage in row.reads:
            if storage not in self._now and storage not in self._outside:
                self._read_outside(storage, row.name)
        for storage in row.mutates:
            if storage not in self._now:
                self._change_outside(storage, row.name)
        account.ran(number)
        if row.product:
            self._workspace, self._writes = run.graph.workspace_in_backward, row.writes

    def _take_kept(self, number: int, kept: dict[int, int]) -> None:
        """The policy saved the outputs of an operator: they take the place of what it would allocate."""
        graph, since, now = self._run.graph, self._frame.kept_at[number], self._run.account.at
        name = graph.operators[number].name
        self._reused = {}
        for storage, copy in kept.items():
            if any(since < place < now for place in graph.changes.get(storage, ())):
                raise self._run.refused(
                    self._frame, f"what the policy saves of {name} is changed in place later, which torch does not allow"
                )
            if storage not in self._now and storage not in self._outside and self._is_made_here(storage):
                self._reused[storage] = copy
            elif self._now.get(storage, self._outside.get(storage, storage)) == copy:
                self._until_end.append(copy)
            else:
                raise self._run.refused(
                    self._frame, f"the policy saves {name}, a view of what is computed again: save what makes its storage too"
                )

    def _is_made_here(self, storage: int) -> bool:
        place = self._run.graph.made.get(storage, -1)
        return self._frame.start < place < self._frame.stop

    def _cast_again(self, operator: int) -> None:
        """Autocast had kept a cast; when the call runs again, what was kept is gone, and the cast is made anew."""
        run = self._run
        for storage in run.graph.operators[operator].writes:
            if storage not in self._now:
                if storage not in run.gone:
                    raise run.refused(self._frame, UNDER_AUTOCAST)
                run.account.ran(operator)
                self._now[storage] = run.account.copy(storage)

    def _read_outside(self, storage: int, name: str) -> None:
        run = self._run
        if storage in run.graph.made and not run.account.is_live(storage):
            raise run.refused(self._frame, f"{name} in it reads a tensor that is none of its inputs and is gone by then")

    def _change_outside(self, storage: int, name: str) -> None:
        run = self._run
        if storage in run.graph.made:
            raise run.refused(
                self._frame, f"{name} in it changes a tensor of the step that it did not make: computed again, it would do so twice"
            )
        module = run.graph.calls[self._frame.call].module
        run.notes[f"{module}: {name} changes a buffer in place, and does so a second time when it is computed again"] = None

    def _alloc(self, storage: int) -> None:
        run = self._run
        if storage in self._reused:
            self._now[storage] = self._reused.pop(storage)
        elif not self._skipping and storage not in run.graph.workspaces:
            self._now[storage] = run.account.copy(storage)

    def _take_workspace(self) -> None:
        if self._workspace is not None and not self._run.account.is_live(self._workspace):
            self._run.account.alloc(self._workspace)
        self._workspace = None

    def _save(self, key: Key, storage: int | None) -> None:
        """Autograd saves a tensor: it stays for the node that asked, unless that is gone; then until the end of the recomputation."""
        self._count += 1
        account = self._run.account
        copy = None if storage is None else self._now.get(storage, self._outside.get(storage, storage))
        if copy is not None:
            if not account.is_live(copy):
                raise self._run.refused(self._frame, "it saves a tensor that is none of its inputs and is gone by then")
            account.hold(copy)
        if key in self._run.released:
            if copy is not None:
                self._until_end.append(copy)
        else:
            self._found[key] = copy
