"""Index of the blocks of each source, built from events; answers queries for the longest prefix."""
from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from enum import Enum
from typing import Collection, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from .groups import Group, Part, Plan, Rule, Told, longest, plan, rule_of
from .kinds import GPU, AllBlocksCleared, BlockRemoved, BlockStored, Event, Hash

Adapter = Union[str, int, None]
"""The name of a LoRA adapter, its number where events have no name, None for the model alone."""


class AnyAdapter(Enum):
    ANY = 0


ANY = AnyAdapter.ANY
"""Every adapter by itself, and the model alone."""

_Block = tuple[int, Hash]
"""Group and hash."""
_Value = Union[int, tuple[int, ...]]
"""Number of the variant << 32 | bits of mediums; several where a hash was stored in several variants."""
_MEDIUMS = 32
_BITS = (1 << _MEDIUMS) - 1


class Prefix(NamedTuple):
    """How many of the asked hashes an engine would hit, from the first on."""

    source: str
    medium: Optional[str]
    """None: on any of its mediums, block by block."""
    blocks: int
    lora: Adapter = None
    """The adapter that the blocks are of."""


class _Variant(NamedTuple):
    """Differences of blocks with one hash and group."""

    rule: Rule
    size: int
    lora: Adapter


class _Variants:
    """Numbers for them, as long as blocks use them."""

    LIMIT = 65_536

    def __init__(self) -> None:
        self.of: list[_Variant] = []
        self._numbers: dict[_Variant, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, variant: _Variant) -> Optional[int]:
        """One use of it; None where there are too many."""
        number = self._numbers.get(variant)
        if number is None:
            if len(self._numbers) >= self.LIMIT:
                return None
            if self._free:
                number = self._free.pop()
                self.of[number] = variant
            else:
                number = len(self.of)
                self.of.append(variant)
                self._uses.append(0)
            self._numbers[variant] = number
        self._uses[number] += 1
        return number

    def use(self, number: int) -> None:
        self._uses[number] += 1

    def give(self, number: int) -> None:
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._numbers[self.of[number]]
            self.of[number] = _Variant(Rule.UNKNOWN, 0, None)
            self._free.append(number)


class _Source:
    __slots__ = ("blocks", "count", "told", "plans")

    def __init__(self) -> None:
        self.blocks: OrderedDict[_Block, _Value] = OrderedDict()
        self.count = 0
        self.told: dict[tuple[int, Rule], Told] = {}
        """Sizes and windows of its groups. They outlive the blocks, because a plan needs those of absent groups, too."""
        self.plans: dict[tuple[Optional[int], Optional[int]], Optional[Plan]] = {}

    def plan(self, group: Optional[int], unit: Optional[int]) -> Optional[Plan]:
        if (group, unit) not in self.plans:
            if len(self.plans) >= 16:
                self.plans.clear()
            self.plans[group, unit] = plan(self.told, group, None, unit)
        return self.plans[group, unit]


class Index:
    """Index of at most `limit` blocks of all sources together. Beyond that the oldest block of the source with most
    blocks is removed. A hash counts as one block for each group, kind, block size and adapter of its events. Thread:
    any.

    Bounds: 32 mediums; 4,096 sources (one without blocks is replaced by a new one). Per source: 64 groups and kinds
    with 8 block sizes each. 16 kinds, sizes and adapters of one hash and group, and 65,536 in total. Events beyond that
    are not used, and counted in `ignored`. An answer has at most 64 adapters of a source.

    The groups of a source come from its events (group_idx; without it, one group of full attention). The blocks of a
    group that a hit needs depend on its kind (groups.py). For an unknown kind every block is needed, so an answer never
    exceeds the real hit. Groups stay known when blocks are removed or cleared; clear() removes them."""

    MAX_SOURCES = 4096
    MAX_GROUPS = 64
    MAX_SIZES = 8
    MAX_VARIANTS = 16
    MAX_ADAPTERS = 64

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._sources: dict[str, _Source] = {}
        self._mediums: dict[str, int] = {}
        self._variants = _Variants()
        self._blocks = 0
        self.forgotten = 0
        """Blocks that went because of the limit."""
        self.ignored = 0
        """Blocks, and events that had none, that were not taken because of the other bounds."""

    def __len__(self) -> int:
        return self._blocks

    def apply(self, source: str, events: Iterable[Event]) -> None:
        """Takes what a source says of itself. Data-parallel ranks are sources of their own (Received.stream)."""
        with self._lock:
            for event in events:
                if isinstance(event, AllBlocksCleared):
                    self._empty(source)
                elif isinstance(event, BlockStored):
                    self._store(source, event)
                else:
                    self._remove(source, event)

    def clear(self, source: str) -> None:
        """Forgets a source: it restarted, or messages of it are lost for good."""
        with self._lock:
            self._empty(source)
            self._sources.pop(source, None)

    def sources(self) -> dict[str, int]:
        """How many blocks of each are known, of those that have any."""
        with self._lock:
            return {name: one.count for name, one in self._sources.items() if one.count}

    def groups(self, source: str) -> dict[int, list[tuple[str, int, int]]]:
        """The groups of a source by its events: the rule of their kind, the largest block size and the window (0:
        unknown)."""
        with self._lock:
            one = self._sources.get(source)
            found: dict[int, list[tuple[str, int, int]]] = {}
            for (group, rule), told in ({} if one is None else one.told).items():
                found.setdefault(group, []).append((rule.name.lower(), max(told.sizes, default=0), told.window))
            return found

    def mediums(self, source: str, block: Hash, group: int = 0) -> set[str]:
        """Where a source has a block of a group, with any size and adapter."""
        with self._lock:
            one = self._sources.get(source)
            bits = 0
            if one is not None:
                for value in _pairs(one.blocks.get((group, block))):
                    bits |= value
            return {name for name, bit in self._mediums.items() if bits & bit}

    def longest_prefix(self, hashes: Sequence[Hash], group: Optional[int] = None, *,
                       lora: Union[Adapter, AnyAdapter] = ANY, tokens: Optional[int] = None,
                       block_size: Optional[int] = None, eagle: Union[bool, Collection[int]] = False,
                       groups: Optional[Mapping[int, Group]] = None) -> list[Prefix]:
        """Returns for each source with a hit its prefix over all its mediums, and on each medium. Ordered by length,
        longest first, then by name. A prefix is one that all groups of the source agree on, as in the engine.

        hashes      hashes of the prompt's blocks, in order, as in the engine's events
        group       only this group, by the rule of its kind; None: all groups
        lora        one adapter: its name, or its number if events have no name; None: the model without adapter; ANY:
                    each adapter separately. Blocks of one adapter never count for another
        tokens      length of the prompt: an engine computes the last token even if all blocks are there. None, or with
                    an unknown block size: the prompt is longer than the hashes cover
        block_size  tokens per hash; None: the largest that divides all block sizes of the source. It is needed if the
                    engine hashes in smaller steps than that
        eagle       the engine drafts with EAGLE or MTP and computes the last block again: the groups for which it does,
                    or True for all of them
        groups      all groups of the model, if the router knows them; None: those of the events. Without it a source
        with
                    only windows and states has no prefix: a model without other groups is rare, and looks like one with
                    missing groups

        Hits end where blocks of all groups end. vLLM can end one inside a block if a model has states and hashes are
        finer than blocks ("align"); that part of a block is not counted. ValueError: block_size is not a size."""
        if block_size is not None and block_size <= 0:
            raise ValueError(f"block_size is {block_size}: how many tokens each hash is of")
        found: list[Prefix] = []
        if tokens is not None and tokens <= 0:
            return found
        with self._lock:
            for name, source in self._sources.items():
                if not source.count:
                    continue
                whole = (source.plan(group, block_size) if groups is None
                         else plan(source.told, group, groups, block_size))
                if whole is not None:
                    found += self._prefixes(name, source, whole, hashes, lora, tokens, eagle)
        found.sort(key=lambda one: (-one.blocks, one.source, one.medium or "", str(one.lora or "")))
        return found

    # ---- asked

    def _prefixes(self, name: str, source: _Source, whole: Plan, hashes: Sequence[Hash],
                  lora: Union[Adapter, AnyAdapter], tokens: Optional[int],
                  eagle: Union[bool, Collection[int]]) -> Iterator[Prefix]:
        limit = len(hashes) * whole.unit
        if tokens is not None and whole.sized:
            limit = min(limit, tokens - 1)
        ask = limit // whole.unit
        rows: list[list[_Rows]] = []
        for part in whole.parts:
            of_part = [self._rows(source, whole, part, group, hashes, ask) for group in part.groups]
            if part.rule == Rule.FULL:
                shortest = min(len(of_group.at) for of_group in of_part)
                if not shortest:
                    return
                # With EAGLE the other groups may need one block more.
                ask = min(ask, shortest + max(one.size for one in whole.parts) // whole.unit)
            rows.append(of_part)
        masks = {there for of_part in rows for of_group in of_part for row in of_group.rows for _, _, there in row}
        bits = 0
        for mask in masks:
            bits |= mask
        for adapter in self._adapters(whole, rows) if isinstance(lora, AnyAdapter) else (lora,):
            length = _length(whole, rows, adapter, bits, limit, eagle)
            if not length:
                continue
            yield Prefix(name, None, length, adapter)
            for medium, bit in self._mediums.items():
                if bits & bit:
                    # A value on every present block makes no difference.
                    alone = (length if all(mask & bit for mask in masks)
                             else _length(whole, rows, adapter, bit, limit, eagle))
                    if alone:
                        yield Prefix(name, medium, alone, adapter)

    def _rows(self, source: _Source, whole: Plan, part: Part, group: int, hashes: Sequence[Hash], ask: int) -> _Rows:
        """The entries of each hash of one group. For full attention only as many as can follow each other."""
        get = source.blocks.get
        found = _Rows([()], [])
        numbers: dict[Optional[_Value], int] = {None: 0}
        full, reach, last = part.rule == Rule.FULL, max(1, part.size // whole.unit), 0
        for at in range(ask):
            value = get((group, hashes[at]))
            number = numbers.get(value)
            if number is None:
                row = self._row(whole, part, value)
                number = numbers[value] = len(found.rows) if row else 0
                if row:
                    found.rows.append(row)
            found.at.append(number)
            if number:
                last = at + 1
            elif full and at + 1 - last >= reach:
                break
        if full:
            del found.at[last:]
        return found

    def _row(self, whole: Plan, part: Part, value: Optional[_Value]) -> _Row:
        """Units, adapter and mediums of what fits a group."""
        row: list[tuple[int, Adapter, int]] = []
        for pair in _pairs(value):
            rule, size, adapter = self._variants.of[pair >> _MEDIUMS]
            size = size or part.size
            if rule in part.accepts and size % whole.unit == 0:
                row.append((size // whole.unit, adapter, pair & _BITS))
        return tuple(row)

    def _adapters(self, whole: Plan, rows: Sequence[Sequence[_Rows]]) -> Iterable[Adapter]:
        """The candidates for a prefix: for full attention, those of the first block."""
        first, of_group = whole.parts[0], rows[0][0]
        at = of_group.at[:max(1, first.size // whole.unit)] if first.rule == Rule.FULL else of_group.at
        found = dict.fromkeys(adapter for number in dict.fromkeys(at) for _, adapter, _ in of_group.rows[number])
        return itertools.islice(found, self.MAX_ADAPTERS)

    # ---- events

    def _bit(self, medium: Optional[str]) -> int:
        name = medium or GPU
        bit = self._mediums.get(name)
        if bit is None:
            if len(self._mediums) == _MEDIUMS:
                return 0
            bit = self._mediums[name] = 1 << len(self._mediums)
        return bit

    def _open(self, name: str) -> Optional[_Source]:
        source = self._sources.get(name)
        if source is None:
            if len(self._sources) >= self.MAX_SOURCES:
                idle = next((other for other, one in self._sources.items() if not one.count), None)
                if idle is None:
                    return None
                del self._sources[idle]
            source = self._sources[name] = _Source()
        return source

    def _learn(self, source: _Source, group: int, rule: Rule, event: BlockStored) -> bool:
        """False where it is more than is kept of a source."""
        told = source.told.get((group, rule))
        size, window = max(0, event.block_size), max(0, event.kv_cache_spec_sliding_window or 0)
        if told is None:
            if len(source.told) >= self.MAX_GROUPS:
                return False
            told = Told()
        elif window <= told.window and (not size or size in told.sizes):
            return True
        if size and size not in told.sizes:
            if len(told.sizes) >= self.MAX_SIZES:
                return False
            told = Told((*told.sizes, size), told.window)
        source.told[group, rule] = Told(told.sizes, max(told.window, window))
        source.plans.clear()
        return True

    def _store(self, name: str, event: BlockStored) -> None:
        source, bit = self._open(name), self._bit(event.medium)
        group, rule = event.group_idx or 0, rule_of(event.kv_cache_spec_kind)
        if source is None or not bit or not self._learn(source, group, rule, event):
            self.ignored += len(event.block_hashes) or 1
            return
        lora = event.lora_id if event.lora_name is None else event.lora_name
        variant = self._variants.take(_Variant(rule, max(0, event.block_size), lora))
        if variant is None:
            self.ignored += len(event.block_hashes) or 1
            return
        mine = variant << _MEDIUMS | bit
        for one in event.block_hashes:
            self._add(source, (group, one), mine)
        self._variants.give(variant)

    def _add(self, source: _Source, block: _Block, mine: int) -> None:
        blocks = source.blocks
        before = blocks.get(block)
        if before is not None:
            pairs = _pairs(before)
            at = next((at for at, value in enumerate(pairs) if value >> _MEDIUMS == mine >> _MEDIUMS), -1)
            if at >= 0:
                blocks[block] = pairs[0] | mine if len(pairs) == 1 else (*pairs[:at], pairs[at] | mine, *pairs[at + 1:])
                blocks.move_to_end(block)
                return
            if len(pairs) >= self.MAX_VARIANTS:
                self.ignored += 1
                return
            blocks[block] = (*pairs, mine)
            blocks.move_to_end(block)
        else:
            blocks[block] = mine
        self._variants.use(mine >> _MEDIUMS)
        source.count += 1
        self._blocks += 1
        while self._blocks > self._limit:
            self._evict()

    def _evict(self) -> None:
        largest = max(self._sources.values(), key=lambda one: one.count)
        self.forgotten += self._gone(largest, largest.blocks.popitem(last=False)[1])

    def _remove(self, name: str, event: BlockRemoved) -> None:
        source = self._sources.get(name)
        bit = self._mediums.get(event.medium or GPU, 0)
        if source is None or not bit:
            return
        # Which group is meant is not said: then none of them is promised to have it.
        groups = {group for group, _ in source.told} if event.group_idx is None else (event.group_idx,)
        for group in groups:
            for one in event.block_hashes:
                block = (group, one)
                value = source.blocks.get(block)
                if value is None:
                    continue
                left = tuple(pair & ~bit for pair in _pairs(value) if pair & ~bit & _BITS)
                if left:
                    source.blocks[block] = left[0] if len(left) == 1 else left
                else:
                    del source.blocks[block]
                kept = {pair >> _MEDIUMS for pair in left}
                self._gone(source, tuple(pair for pair in _pairs(value) if pair >> _MEDIUMS not in kept))

    def _gone(self, source: _Source, value: _Value) -> int:
        pairs = _pairs(value)
        for pair in pairs:
            self._variants.give(pair >> _MEDIUMS)
        source.count -= len(pairs)
        self._blocks -= len(pairs)
        return len(pairs)

    def _empty(self, name: str) -> None:
        source = self._sources.get(name)
        if source is not None:
            blocks, source.blocks = source.blocks, OrderedDict()
            for value in blocks.values():
                self._gone(source, value)


_Row = tuple[tuple[int, Adapter, int], ...]


class _Rows(NamedTuple):
    rows: list[_Row]
    """Distinct rows; the first is empty."""
    at: list[int]
    """Which of them each hash has."""


def _pairs(value: Optional[_Value]) -> tuple[int, ...]:
    return () if value is None else (value,) if isinstance(value, int) else value


def _length(whole: Plan, rows: Sequence[Sequence[_Rows]], adapter: Adapter, mask: int, limit: int,
            eagle: Union[bool, Collection[int]]) -> int:
    """Hashes that are hit, of one adapter, on the mediums of a mask."""
    starts: list[Sequence[int]] = []
    for of_part in rows:
        of_groups = [_starts(of_group, adapter, mask) for of_group in of_part]
        # A part has what each of its groups has.
        starts.append(of_groups[0] if len(of_groups) == 1 else [max(at) for at in zip(*of_groups)])
    return longest(whole, starts, limit, eagle) // whole.unit


def _starts(rows: _Rows, adapter: Adapter, mask: int) -> list[int]:
    """Where the unbroken run of blocks begins that ends after each hash."""
    sizes = [tuple({size for size, who, there in row if there & mask and who == adapter}) for row in rows.rows]
    starts = [0]
    for end, number in enumerate(rows.at, 1):
        start = end
        for size in sizes[number]:
            if size <= end and starts[end - size] < start:
                start = starts[end - size]
        starts.append(start)
    return starts
