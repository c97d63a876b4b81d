"""Matches: what a lookup found, held until it is released."""
from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Optional, Sequence

from . import _native as raw
from . import _raw
from .block import Blocks
from .constants import Lookup, TierNumber
from .geometry import Part, closed, parts_memory
from .key import Keys, as_keys
from .memory import shown

if TYPE_CHECKING:
    from .key import KeysLike
    from .manager import Manager


class MatchItem(NamedTuple):
    """One key of a match."""

    tier: TierNumber  # the slowest that a part must come from; NO_TIER = missed
    parts_needed: int  # bit i: part i is needed and there
    bytes: int
    below_bytes: int  # part of `bytes` that is not in the host tier yet


class Match:
    """Result of a lookup. Holds the blocks found in the host until release(), or until the object is collected. `hits`
    is the number of leading keys that hit (PREFIX), of all keys that hit (EACH), or 0 or 1 (ANY). A match is true if
    any key hit. A match without hits is empty, never None."""

    __slots__ = ("_handle", "_manager", "hits", "keys", "_released", "__weakref__")

    def __init__(self, manager: Manager, keys: Keys, handle: Optional[raw.Handle], hits: int) -> None:
        self._manager = manager
        self._handle = handle
        self.keys = keys
        self.hits = hits
        self._released = False

    def __bool__(self) -> bool:
        return self._handle is not None

    def __len__(self) -> int:
        """Keys the match was made from, hits or not; 0 if nothing hit. One more if a block that matches in part lies
        behind them."""
        return raw.kvbm_match_count(self._open()) if self._held() else 0

    @property
    def units(self) -> int:
        """Leading engine blocks that hit: give Cache.load this many block ids."""
        return raw.kvbm_match_units(self._open()) if self._held() else 0

    def items(self, first: int = 0, n: Optional[int] = None) -> list[MatchItem]:
        """Describes keys [first, first + n)."""
        if not self._held():
            return []
        n = len(self) - first if n is None else n
        return [MatchItem(TierNumber(tier), *rest) for tier, *rest in raw.kvbm_match_items(self._open(), first, n)[1]]

    def cost(self, first: int = 0, n: Optional[int] = None) -> list[int]:
        """Predicted nanoseconds of loading keys [first, first + i], for each i; by default of the leading hits."""
        if not self._held():
            return []
        n = max(self.hits - first, 0) if n is None else n
        return list(raw.kvbm_match_cost(self._open(), first, n)[1])

    def blocks(self, first: int = 0, n: Optional[int] = None, *, part: int = 0) -> Blocks:
        """New holds on part `part` of keys [first, first + n), by default of the leading hits; a hold is 0 where the
        block is not in the host tier (Blocks.present)."""
        manager = self._manager._handle
        if manager is None:
            raise closed("manager")
        if not self._held():
            return Blocks(manager, raw.Memory(0, format="Q"))
        n = max(self.hits - first, 0) if n is None else n
        return Blocks(manager, raw.kvbm_match_blocks(self._open(), part, first, n)[1])

    @property
    def released(self) -> bool:
        return self._released

    def release(self) -> None:
        """Releases the held blocks. Loads that were submitted with it go on. May be called twice."""
        self._released = True
        self._handle = None

    def _held(self) -> bool:
        """False for a match of nothing. One that was released raises in _open."""
        return self._handle is not None or self._released

    def _found(self) -> Optional[raw.Handle]:
        """The native match of a load; None for a match without hits. Raises after release."""
        return self._open() if self._held() else None

    def _open(self) -> raw.Handle:
        if self._handle is None:
            raise closed("match")
        return self._handle

    def __repr__(self) -> str:
        return shown(self, self.released, hits=self.hits, keys=len(self.keys))

    def __enter__(self) -> Match:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.release()


def lookup_options(mode: Lookup, parts: Optional[Sequence[Part]], host_only: bool, no_use: bool,
                   unit_keys: Optional[KeysLike], ask_nodes_ns: int) -> tuple[Optional[raw.Struct], tuple[object, ...]]:
    """The options, None for all defaults, and what they point to."""
    if mode == 0 and parts is None and not host_only and not no_use and unit_keys is None and ask_nodes_ns == 0:
        return None, ()
    options = _raw.kvbm_lookup_options_t()
    options.mode, options.host_only, options.no_use = mode, int(host_only), int(no_use)
    options.ask_nodes_ns = ask_nodes_ns
    kept: list[object] = []
    if parts is not None:
        memory = parts_memory(parts)
        options.parts, options.n_parts = memory, len(parts)
        kept.append(memory)
    if unit_keys is not None:
        units = as_keys(unit_keys)
        if len(units) != 0:
            options.unit_keys, options.n_unit_keys = units, len(units)
        kept.append(units)
    return options, tuple(kept)
