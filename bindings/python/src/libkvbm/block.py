"""Blocks of the managed pool: holds, and views of their bytes."""
from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Iterable, Optional, Sequence

from . import _native as raw
from . import _raw
from .constants import Duplicate, Priority
from .errors import KvbmError, invalid
from .geometry import Part, part_memory
from .key import Position, as_keys, one_key, position_memory
from .memory import shown, statuses

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .key import KeysLike
    from .manager import Manager
    from .namespace import Namespace


class Blocks:
    """Holds on n blocks: Partial after Manager.allocate, then complete(), register().

    Views are memoryviews over the library's memory, writable only while the blocks are Partial; nothing is copied. A
    view keeps its blocks: release() ends the holds when the last view has gone. complete(), register(), take() and
    split() are refused (BufferError) while there are views, because a block must not be written after that. Use
    `with blocks.view(i) as view:`.
    """

    __slots__ = ("_holds", "weak", "__weakref__")

    def __init__(self, manager: Optional[raw.Handle], ids: Buffer, *, writable: bool = False,
                 weak: bool = False) -> None:
        self._holds = raw.Holds(manager, ids, writable)
        self.weak = weak

    def __len__(self) -> int:
        return len(self._holds)

    @property
    def ids(self) -> list[int]:
        """The hold numbers; 0 where there is none. They are this object's: it ends them."""
        return memoryview(self._holds.ids()).tolist()

    def view(self, i: int = 0) -> memoryview:
        """The bytes of block i."""
        if i < 0:
            i += len(self)
        view: memoryview = self._holds.views(i, 1)[0]
        return view

    def views(self, first: int = 0, n: Optional[int] = None) -> list[memoryview]:
        """The bytes of blocks [first, first + n)."""
        return self._holds.views(first, len(self) - first if n is None else n)

    def slots(self) -> list[int]:
        """Positions of the blocks in the host tier, stable while they are held."""
        return self._holds.slots(0, len(self))

    def complete(self, sizes: Optional[Iterable[int]] = None) -> None:
        """Partial -> Complete: the bytes are final. `sizes` are payload lengths; None = whole blocks."""
        memory = None
        if sizes is not None:
            numbers = list(sizes)
            if len(numbers) != len(self):
                raise invalid(f"{len(self)} blocks, and {len(numbers)} sizes")
            memory = raw.Memory(b"".join(n.to_bytes(8, "little") for n in numbers) or bytes(8), format="Q")
        manager, ids, writable = self._holds.manager, self._holds.take(), True
        try:
            raw.kvbm_manager_complete(manager, ids, memory)
            writable = False
        finally:
            self._holds.put(ids, writable)

    def register(self, ns: Namespace, keys: KeysLike, *, duplicates: Duplicate = Duplicate.REUSE,
                 part: Optional[Part] = None, parent: Optional[Buffer] = None, unchained: bool = False,
                 priority: Priority = Priority.NORMAL,
                 positions: Optional[Sequence[Position]] = None) -> memoryview:
        """Complete -> Registered: findable by key from now on, read-only. Returns a status for each block: OK, or
        EXISTS where the key was there already (its block was reused, or yours kept private). `positions` are for
        content keys: where each block was computed."""
        names = as_keys(keys)
        if len(names) != len(self):
            raise invalid(f"{len(self)} blocks, and {len(names)} keys")
        kept = (part_memory(part), None if parent is None else one_key(parent), statuses(len(self)))
        where = position_memory(positions, len(self))
        options = _raw.kvbm_register_options_t()
        options.duplicates, options.priority, options.unchained = duplicates, priority, int(unchained)
        options.part, options.parent, options.item_status = kept
        options.positions = where
        manager, ids = self._holds.manager, self._holds.take()
        try:
            raw.kvbm_manager_register(manager, ns._handle, ids, names, len(names), options)
        finally:
            self._holds.put(ids, False)
        return memoryview(kept[2])[:len(self)]

    def clone(self) -> Blocks:
        """One more hold on each (Registered blocks only)."""
        manager = self._holds.manager
        return Blocks(manager, raw.kvbm_block_clone(manager, self._holds.ids())[1])

    def downgrade(self) -> Blocks:
        """Weak references, which do not keep the blocks; upgrade() them."""
        manager = self._holds.manager
        return Blocks(manager, raw.kvbm_block_downgrade(manager, self._holds.ids())[1], weak=True)

    def upgrade(self) -> Blocks:
        """New holds from weak ones; `ids` is 0 where the block has gone."""
        manager = self._holds.manager
        return Blocks(manager, raw.kvbm_block_upgrade(manager, self._holds.ids())[1])

    @property
    def present(self) -> list[bool]:
        """Of match.blocks() and upgrade(): which are there."""
        return [number != 0 for number in self.ids]

    def split(self, at: int) -> tuple[Blocks, Blocks]:
        """Moves the holds into two objects, of the first `at` blocks and of the others; this one is empty then."""
        n = len(self)
        if not 0 <= at <= n:
            raise IndexError("no such block")
        parts = self.take([*range(at)], [*range(at, n)])
        return parts[0], parts[1]

    def take(self, *groups: Sequence[int]) -> list[Blocks]:
        """Moves holds into new objects, one for each group of indices; what no group names is released."""
        chosen = [i for group in groups for i in group]
        if len(set(chosen)) != len(chosen) or any(not 0 <= i < len(self) for i in chosen):
            raise IndexError("no such block, or one that is named twice")
        manager, writable = self._holds.manager, self._holds.writable
        ids = self._holds.take()
        numbers = memoryview(ids).tolist()
        moved: list[Blocks] = []
        try:
            for group in groups:
                part = raw.Memory(b"".join(numbers[i].to_bytes(8, "little") for i in group), format="Q")
                moved.append(Blocks(manager, part, writable=writable, weak=self.weak))
                for i in group:
                    numbers[i] = 0
        finally:
            rest = [number for number in numbers if number != 0]
            self._holds.put(raw.Memory(b"".join(n.to_bytes(8, "little") for n in rest), format="Q"), writable)
            self.release()
        return moved

    @property
    def released(self) -> bool:
        return self._holds.ended

    def release(self) -> None:
        """Ends the holds, once the last view has gone. Partial and Complete blocks go back to the pool; Registered
        ones stay findable. Twice is fine."""
        self._holds.end()

    def __repr__(self) -> str:
        return shown(self, self.released, n=len(self), weak=self.weak)

    def __enter__(self) -> Blocks:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self.release()
        except KvbmError:
            if error is None:
                raise
