"""Joins descriptions of blocks by plug-ins with the tiers of the blocks into events."""
from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from .kinds import AllBlocksCleared, BlockRemoved, BlockStored, Event, Hash

_MAX_MERGED = 1024
_NAMESPACE = 16
Place = tuple[bytes, int, int]
"""Namespace and key, component, tier."""


@dataclass(slots=True)
class Described:
    """A block in the engine's words."""

    hash: Hash
    parent: Optional[Hash]
    tokens: Sequence[Any]
    about: About
    present: dict[int, int]  # tier -> bits of components


@dataclass(frozen=True, slots=True)
class About:
    """Common fields of consecutive blocks."""

    block_size: int = 0
    lora_id: Optional[int] = None
    lora_name: Optional[str] = None
    group_idx: Optional[int] = None
    kv_cache_spec_kind: Optional[str] = None
    kv_cache_spec_sliding_window: Optional[int] = None
    session_id: Optional[str] = None
    cache_salt: Optional[str] = None
    extra_key: Any = None
    components: int = 1


class Teller:
    """Joins changes into as few events as possible."""

    def __init__(self, locality: Optional[str], ownership: Optional[str]) -> None:
        self._locality, self._ownership = locality, ownership
        self.events: list[Event] = []
        self._about: Optional[About] = None

    def stored(self, one: Described, medium: str) -> None:
        last = self.events[-1] if self.events else None
        if (isinstance(last, BlockStored) and last.medium == medium and self._about == one.about
                and last.block_hashes[-1] == one.parent and bool(last.token_ids) == bool(one.tokens)
                and len(last.block_hashes) < _MAX_MERGED):
            last.block_hashes.append(one.hash)
            last.token_ids.extend(one.tokens)
            if last.extra_keys is not None:
                last.extra_keys = [*last.extra_keys, one.about.extra_key]
            return
        about = self._about = one.about
        self.events.append(BlockStored(
            [one.hash], one.parent, list(one.tokens), about.block_size if one.tokens else 0, about.lora_id, medium,
            about.lora_name, None if about.extra_key is None else [about.extra_key], about.group_idx,
            about.kv_cache_spec_kind, about.kv_cache_spec_sliding_window, self._locality, self._ownership,
            about.session_id, None, about.cache_salt))

    def removed(self, one: Described, medium: str) -> None:
        last = self.events[-1] if self.events else None
        if (isinstance(last, BlockRemoved) and last.medium == medium and last.group_idx == one.about.group_idx
                and len(last.block_hashes) < _MAX_MERGED):
            last.block_hashes.append(one.hash)
            return
        self.events.append(BlockRemoved([one.hash], medium, one.about.group_idx, self._locality, self._ownership))

    def cleared(self) -> None:
        self.events = [AllBlocksCleared()]


class Registry:
    """Has at most `limit` described blocks, and as many places of blocks without a description. A described block that
    is dropped while it is in a tier is reported as removed: a router may know fewer blocks than there are, never more.
    Thread: one at a time."""

    def __init__(self, mediums: Mapping[int, str], limit: int, whole: bool, teller: Callable[[], Teller]) -> None:
        self._mediums, self._limit, self._whole, self._new_teller = dict(mediums), limit, whole, teller
        self._known: OrderedDict[bytes, Described] = OrderedDict()
        self._waiting: OrderedDict[bytes, dict[int, int]] = OrderedDict()
        self._there: dict[bytes, dict[bytes, None]] = {}
        """Of each namespace the blocks of both that are somewhere, so that a reset costs what it takes away."""
        self._told_blocks = 0
        self._teller = teller()
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._known)

    @property
    def undescribed(self) -> int:
        return len(self._waiting)

    def take(self) -> list[Event]:
        """Takes the events since the last call."""
        teller, self._teller = self._teller, self._new_teller()
        return teller.events

    @property
    def pending(self) -> bool:
        return bool(self._teller.events)

    def describe(self, block: bytes, one: Described) -> None:
        before = self._known.get(block)
        if before is None:
            found = self._waiting.pop(block, {})
        else:
            self._known.move_to_end(block)
            if before.hash == one.hash and before.about.components == one.about.components:
                return
            found = before.present
            self._change(before, {})
        self._known[block] = one
        if found:
            self._change(one, found)
        while len(self._known) > self._limit:
            name, gone = self._known.popitem(last=False)
            self.forgotten += bool(gone.present)
            self._change(gone, {})
            self._mark(name, {})

    def stored(self, place: Place) -> None:
        block, component, tier = place
        one = self._known.get(block)
        present = dict(one.present) if one is not None else self._waiting.setdefault(block, {})
        present[tier] = present.get(tier, 0) | 1 << component
        self._mark(block, present)
        if one is not None:
            self._change(one, present)
            return
        self._waiting.move_to_end(block)
        if len(self._waiting) > self._limit:
            self._mark(self._waiting.popitem(last=False)[0], {})

    def removed(self, place: Place) -> None:
        block, component, tier = place
        one = self._known.get(block)
        present = dict(one.present) if one is not None else self._waiting.get(block)
        if present is None or tier not in present:
            return
        present[tier] &= ~(1 << component)
        if not present[tier]:
            del present[tier]
        self._mark(block, present)
        if one is not None:
            self._change(one, present)
        elif not present:
            del self._waiting[block]

    def lost_tier(self, tier: int) -> None:
        self._settle({block: {t: bits for t, bits in present.items() if t != tier}
                      for block, present in (*self._waiting.items(),
                                             *((block, one.present) for block, one in self._known.items()))})

    def cleared(self, namespace: bytes) -> None:
        """Every block of a namespace has left every tier; of all namespaces where it is zero."""
        spaces = [namespace] if any(namespace) else list(self._there)
        gone: list[Described] = []
        for block in [block for space in spaces for block in self._there.pop(space, ())]:
            if self._waiting.pop(block, None) is None:
                gone.append(self._known[block])
        told = sum(bool(self._told(one, one.present)) for one in gone)
        if self._whole and told and told == self._told_blocks:
            self._teller.cleared()
            self._told_blocks = 0
            for one in gone:
                one.present = {}
        else:
            for one in gone:
                self._change(one, {})

    def settle(self, places: Iterable[Place]) -> None:
        """Replaces the known places of blocks by the given ones."""
        found: dict[bytes, dict[int, int]] = {}
        for block, component, tier in places:
            present = found.setdefault(block, {})
            present[tier] = present.get(tier, 0) | 1 << component
        self._settle(found)

    def _settle(self, found: Mapping[bytes, dict[int, int]]) -> None:
        self._waiting = OrderedDict((block, present) for block, present in found.items()
                                    if present and block not in self._known)
        while len(self._waiting) > self._limit:
            self._waiting.popitem(last=False)
        self._there = {}
        for block, present in found.items():
            if block in self._known or block in self._waiting:
                self._mark(block, present)
        stays = any(self._told(one, found.get(block, {})) for block, one in self._known.items())
        if self._whole and not stays:
            if self._told_blocks:
                self._teller.cleared()
            self._told_blocks = 0
            for block, one in self._known.items():
                one.present = found.get(block, {})
            return
        for block, one in self._known.items():
            self._change(one, found.get(block, {}))

    def _mark(self, block: bytes, present: Mapping[int, int]) -> None:
        space = block[:_NAMESPACE]
        if present:
            self._there.setdefault(space, {})[block] = None
        elif (blocks := self._there.get(space)) is not None:
            blocks.pop(block, None)
            if not blocks:
                del self._there[space]

    def _told(self, one: Described, present: Mapping[int, int]) -> set[str]:
        """The mediums on which it is whole."""
        full = (1 << one.about.components) - 1
        return {self._mediums[tier] for tier, bits in present.items() if bits & full == full and tier in self._mediums}

    def _change(self, one: Described, present: dict[int, int]) -> None:
        before, after = self._told(one, one.present), self._told(one, present)
        one.present = present
        self._told_blocks += bool(after) - bool(before)
        for medium in sorted(after - before):
            self._teller.stored(one, medium)
        for medium in sorted(before - after):
            self._teller.removed(one, medium)


def tokens_of(tokens: Optional[Sequence[Any]], at: int, size: int) -> Sequence[Any]:
    """One block's, in little memory."""
    if tokens is None:
        return ()
    part = tokens[at * size:(at + 1) * size]
    try:
        return array("I", part)
    except (TypeError, OverflowError):  # pairs
        return tuple(part)
