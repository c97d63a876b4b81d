"""Who has what: built from events, asked for the longest prefix."""
from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Iterable, NamedTuple, Optional, Sequence

from .kinds import GPU, AllBlocksCleared, BlockRemoved, BlockStored, Event, Hash

_Block = tuple[int, Hash]


class Prefix(NamedTuple):
    """How many of the asked blocks a source has, from the first on."""

    source: str
    medium: Optional[str]
    """None: on any of its mediums, block by block."""
    blocks: int


class Index:
    """At most `limit` blocks of all sources together; of the source that has most, the one heard of longest ago goes
    first. At most 32 mediums and 4,096 sources: what is beyond is ignored. Thread: any."""

    MAX_SOURCES = 4096

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._sources: dict[str, OrderedDict[_Block, int]] = {}
        self._mediums: dict[str, int] = {}
        self._blocks = 0
        self.forgotten = 0
        """Blocks that went because of the limit."""

    def __len__(self) -> int:
        return self._blocks

    def apply(self, source: str, events: Iterable[Event]) -> None:
        """Takes what a source says of itself."""
        with self._lock:
            for event in events:
                if isinstance(event, AllBlocksCleared):
                    self._clear(source)
                elif isinstance(event, BlockStored):
                    self._store(source, event)
                else:
                    self._remove(source, event)

    def clear(self, source: str) -> None:
        """Forgets a source: it restarted, or messages of it are lost for good."""
        with self._lock:
            self._clear(source)

    def sources(self) -> dict[str, int]:
        """How many blocks of each are known."""
        with self._lock:
            return {name: len(blocks) for name, blocks in self._sources.items()}

    def mediums(self, source: str, block: Hash, group: int = 0) -> set[str]:
        """Where a source has a block."""
        with self._lock:
            blocks = self._sources.get(source)
            bits = 0 if blocks is None else blocks.get((group, block), 0)
            return {name for name, bit in self._mediums.items() if bits & bit}

    def longest_prefix(self, hashes: Sequence[Hash], group: int = 0) -> list[Prefix]:
        """For each source that has the first block: its prefix over all its mediums, and on each alone. The longest
        first, then by name."""
        found: list[Prefix] = []
        with self._lock:
            for source, blocks in self._sources.items():
                n_any, common, ended = 0, 0xffffffff, {}
                for at, block in enumerate(hashes):
                    bits = blocks.get((group, block), 0)
                    gone = common & ~bits
                    if gone:
                        ended[at] = gone
                        common &= bits
                    if not bits:
                        break
                    n_any = at + 1
                if n_any == 0:
                    continue
                found.append(Prefix(source, None, n_any))
                for name, bit in self._mediums.items():
                    n = next((at for at, gone in ended.items() if gone & bit), n_any)
                    if n:
                        found.append(Prefix(source, name, n))
        found.sort(key=lambda one: (-one.blocks, one.source, one.medium or ""))
        return found

    def _bit(self, medium: Optional[str]) -> int:
        name = medium or GPU
        bit = self._mediums.get(name)
        if bit is None:
            if len(self._mediums) == 32:
                return 0
            bit = self._mediums[name] = 1 << len(self._mediums)
        return bit

    def _store(self, source: str, event: BlockStored) -> None:
        bit = self._bit(event.medium)
        blocks = self._sources.get(source)
        if blocks is None:
            if len(self._sources) >= self.MAX_SOURCES:
                return
            blocks = self._sources[source] = OrderedDict()
        if not bit:
            return
        group = event.group_idx or 0
        for one in event.block_hashes:
            block = (group, one)
            before = blocks.get(block)
            if before is None:
                self._blocks += 1
            blocks[block] = (before or 0) | bit
            blocks.move_to_end(block)
            if self._blocks > self._limit:
                self._evict()

    def _evict(self) -> None:
        largest = max(self._sources.values(), key=len)
        largest.popitem(last=False)
        self._blocks -= 1
        self.forgotten += 1

    def _remove(self, source: str, event: BlockRemoved) -> None:
        blocks = self._sources.get(source)
        bit = self._mediums.get(event.medium or GPU, 0)
        if blocks is None or not bit:
            return
        group = event.group_idx or 0
        for one in event.block_hashes:
            bits = blocks.get((group, one), 0) & ~bit
            if bits:
                blocks[(group, one)] = bits
            elif blocks.pop((group, one), None) is not None:
                self._blocks -= 1

    def _clear(self, source: str) -> None:
        gone = self._sources.pop(source, None)
        if gone is not None:
            self._blocks -= len(gone)
