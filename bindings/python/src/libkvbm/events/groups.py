"""Conditions for a prefix hit of an engine: the blocks of each cache group of a model that it needs.

The rules are vLLM's: find_longest_cache_hit of each manager in vllm/v1/core/single_type_kv_cache_manager.py, and of
HybridKVCacheCoordinator in vllm/v1/core/kv_cache_coordinator.py, which asks all groups until they agree. Engines that
send no groups (SGLang, older vLLM) have one group of full attention.

Names of blocks: a hash covers all tokens up to the end of its block. So a block of 64 tokens in one group has the name
of the fourth block of 16 tokens in another (BlockHashListWithBlockSize in vllm/v1/core/kv_cache_utils.py).
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Collection, Mapping, NamedTuple, Optional, Sequence, Union


class Rule(IntEnum):
    """Blocks of a group that a hit needs."""

    UNKNOWN = 0
    """The event names no kind: the group's kind counts if another event names it, else FULL."""
    FULL = 1
    """Every block from the first on."""
    WINDOW = 2
    """The blocks that the window before the next token reaches into."""
    STATE = 3
    """The block that ends there."""
    CHUNK = 4
    """The blocks from the beginning of the next token's chunk on."""


# KVCacheSpecKind in vllm/v1/kv_cache_interface.py; linear attention is sent as "mamba". Other kinds (groups of mixed
# kinds are sent as "unknown") follow the strictest rule, so an answer never exceeds the real hit.
RULES: Mapping[str, Rule] = {
    "full_attention": Rule.FULL, "mla_attention": Rule.FULL, "sink_full_attention": Rule.FULL,
    "sliding_window": Rule.WINDOW, "sliding_window_mla": Rule.WINDOW, "mamba": Rule.STATE,
    "chunked_local_attention": Rule.CHUNK}


def rule_of(kind: Optional[str]) -> Rule:
    return Rule.UNKNOWN if kind is None else RULES.get(kind, Rule.FULL)


@dataclass(frozen=True)
class Group:
    """One cache group of a model, as a router knows it.

    kind        vLLM's name of it ("full_attention", "sliding_window", "mamba", ...); others need every block
    block_size  tokens of a block; 0: as events tell it
    window      tokens of the window or the chunk; 0: as events tell it. vLLM's events tell no size of chunks; where it
                is not known, every block is needed
    """

    kind: str = "full_attention"
    block_size: int = 0
    window: int = 0


class Told(NamedTuple):
    """Facts from events about blocks of one group and one kind."""

    sizes: tuple[int, ...] = ()
    window: int = 0


class Part(NamedTuple):
    """Groups that are alike, and what a hit needs of each of them."""

    rule: Rule
    window: int
    size: int
    groups: tuple[int, ...]
    accepts: frozenset[Rule]
    """Blocks of which rules are theirs."""


class Plan(NamedTuple):
    parts: tuple[Part, ...]
    unit: int
    """Tokens of each hash that is asked for."""
    align: int
    """Hits are multiples of it: the least that all groups' blocks divide."""
    sized: bool
    """Whether unit is tokens; False: no event had sizes, and a unit is a block."""


_Key = tuple[int, Rule]


def plan(told: Mapping[_Key, Told], only: Optional[int] = None, groups: Optional[Mapping[int, Group]] = None,
         unit: Optional[int] = None) -> Optional[Plan]:
    """Rules from events, or from the router. None if no hit can be promised: no known group could begin a prefix, or
    blocks do not fit the hashes' size."""
    by_group: dict[int, dict[Rule, Told]] = {}
    for (number, rule), one in told.items():
        by_group.setdefault(number, {})[rule] = one
    found: list[tuple[int, Rule, Told, frozenset[Rule]]] = []
    if groups is None:
        for number, rules in by_group.items():
            found += ((number, rule, one, accepts) for rule, one, accepts in _resolve(rules))
        # Only windows and states remain of a prompt if this source never had its other groups.
        if only is None and not any(rule == Rule.FULL for _, rule, _, _ in found):
            return None
    else:
        for number, group in groups.items():
            rule = rule_of(group.kind) or Rule.FULL
            rules = by_group.get(number, {})
            one = _joined(rules.get(rule), rules.get(Rule.UNKNOWN))
            found.append((number, rule, Told((group.block_size,) if group.block_size > 0 else one.sizes,
                                             group.window or one.window), frozenset((rule, Rule.UNKNOWN))))
    # Of one group, too, the hashes are those that all groups' blocks are named by.
    sizes = [size for one in (*told.values(), *(one for _, _, one, _ in found)) for size in one.sizes]
    if only is not None:
        found = [one for one in found if one[0] == only]
    return _plan(found, unit or math.gcd(*sizes) or 1, bool(unit or sizes)) if found else None


def _plan(found: Sequence[tuple[int, Rule, Told, frozenset[Rule]]], unit: int, sized: bool) -> Optional[Plan]:
    alike: dict[tuple[Rule, int, int, frozenset[Rule]], list[int]] = {}
    for number, rule, one, accepts in found:
        size, window = max(one.sizes, default=unit), one.window
        if size % unit:
            return None
        if rule in (Rule.WINDOW, Rule.CHUNK) and (window <= 0 or not sized):
            rule = Rule.FULL
        if rule not in (Rule.WINDOW, Rule.CHUNK):
            window = 0
        alike.setdefault((rule, window, size, accepts), []).append(number)
    parts = [Part(rule, window, size, tuple(sorted(numbers)), accepts)
             for (rule, window, size, accepts), numbers in alike.items()]
    # Full attention first, as vLLM does: it is soonest at an end.
    parts.sort(key=lambda part: (part.rule != Rule.FULL, part.groups))
    return Plan(tuple(parts), unit, math.lcm(*(part.size for part in parts)), sized)


def _resolve(rules: Mapping[Rule, Told]) -> list[tuple[Rule, Told, frozenset[Rule]]]:
    """Blocks without a kind have the group's kind if there is one; with two kinds they have none."""
    known = [rule for rule in rules if rule != Rule.UNKNOWN]
    if not known:
        return [(Rule.FULL, rules[Rule.UNKNOWN], frozenset((Rule.UNKNOWN,)))]
    if len(known) == 1:
        return [(known[0], _joined(rules[known[0]], rules.get(Rule.UNKNOWN)), frozenset((known[0], Rule.UNKNOWN)))]
    return [(rule, rules[rule], frozenset((rule,))) for rule in known]


def _joined(one: Optional[Told], other: Optional[Told]) -> Told:
    one, other = one or Told(), other or Told()
    return Told(one.sizes + other.sizes, max(one.window, other.window))


Starts = Sequence[int]
"""Starts[i]: where the unbroken run of blocks begins that ends at the i-th unit; i where no block ends there."""


def longest(whole: Plan, starts: Sequence[Starts], limit: int, eagle: Union[bool, Collection[int]] = False) -> int:
    """Tokens that all parts have, at most `limit`. `starts` are the parts', in their order."""
    parts = whole.parts
    drops = [eagle is True or (eagle is not False and any(number in eagle for number in part.groups)) for part in parts]
    if len(parts) == 1:
        return _find(whole, parts[0], starts[0], limit, drops[0])
    # As vLLM does it: each part takes the length or shortens it, until one round changes nothing. With EAGLE a part has
    # one block more than the hit and drops it, once for each length.
    hit = limit
    simple = len(parts) == 2 and parts[0].rule == Rule.FULL
    full: dict[int, int] = {}
    verified: set[int] = set()
    while True:
        current = hit
        for at, part in enumerate(parts):
            if at in full:
                current = min(current, full[at])
                continue
            drop = drops[at] and at not in verified
            most = min(current + part.size, limit) if drop and part.rule != Rule.STATE else current
            found = _find(whole, part, starts[at], most, drop)
            if drop:
                verified.add(at)
            elif found < current:
                verified.clear()
            current = found
            if part.rule == Rule.FULL:
                full[at] = found
        if current >= hit:
            return hit
        hit = current
        if simple:
            return hit


def _find(whole: Plan, part: Part, starts: Starts, limit: int, drop: bool) -> int:
    """The longest hit of at most `limit` tokens in one part."""
    unit, align, size = whole.unit, whole.align, part.size
    there = min(limit, (len(starts) - 1) * unit)
    if part.rule == Rule.FULL:
        end = 0
        while end + size <= there and not starts[(end + size) // unit]:
            end += size
        if drop and end:
            end -= size
        return end - end % align
    if part.rule == Rule.STATE:  # never dropped: drafts have no states
        for end in range(there // size * size, 0, -size):
            if end % align == 0 and starts[end // unit] < end // unit:
                return end
        return 0
    if part.rule == Rule.CHUNK:
        begin = end = limit // part.window * part.window // size * size
        while end + size <= there and starts[(end + size) // unit] * unit <= begin:
            end += size
        return end - end % align
    return _find_window(whole, part, starts, there, drop)


def _find_window(whole: Plan, part: Part, starts: Starts, there: int, drop: bool) -> int:
    unit, align, size = whole.unit, whole.align, part.size
    dropped = size if drop else 0
    # The next token is in its window as well.
    need = -(-(part.window - 1) // size) * size + dropped
    for end in range(there // size * size, 0, -size):
        if (end - dropped) % align:
            continue
        begin = starts[end // unit] * unit
        if end > begin and end - begin >= need:
            return end - dropped
        if not begin:  # shorter than the window, and whole
            end -= end % align
            if drop and end:
                end -= size
                end -= end % align
            return end
    return 0
