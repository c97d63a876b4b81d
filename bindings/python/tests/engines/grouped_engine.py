"""A small engine with several cache groups, made by vLLM's rules: what it stores and evicts, what it says of that, and
what it would hit. Written from vllm/v1/core/single_type_kv_cache_manager.py and kv_cache_coordinator.py, block by block
and apart from libkvbm.events.groups, which it is compared with."""
from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence

from libkvbm.events import AllBlocksCleared, BlockRemoved, BlockStored, Event

FULL = ("full_attention", "mla_attention", "sink_full_attention")
WINDOW = ("sliding_window", "sliding_window_mla")


@dataclass(frozen=True)
class Spec:
    kind: str
    block_size: int
    window: int = 0  # of a chunk: its size, which no event tells


@dataclass
class Prompt:
    hashes: list[int]  # one for each hash_size tokens
    adapter: Optional[str]


@dataclass
class Engine:
    specs: list[Spec]
    hash_size: int
    eagle: frozenset[int] = frozenset()
    pools: dict[str, set[tuple[int, int]]] = field(default_factory=dict)  # medium -> group, hash

    @property
    def align(self) -> int:
        return math.lcm(*(spec.block_size for spec in self.specs))

    # ---- what it does, and says

    def store(self, rng: random.Random, medium: str, prompt: Prompt) -> list[Event]:
        pool = self.pools.setdefault(medium, set())
        told: list[Event] = []
        # HybridKVCacheCoordinator.cache_blocks: whole units of all groups, and the block beyond that EAGLE looks at.
        whole = len(prompt.hashes) * self.hash_size // self.align * self.align
        for group, spec in enumerate(self.specs):
            tokens = whole
            if group in self.eagle and whole:
                tokens = min(len(prompt.hashes) * self.hash_size, whole + spec.block_size)
            names = self.names(prompt.hashes, spec.block_size)[:tokens // spec.block_size]
            if spec.kind not in FULL and rng.random() < 0.7:  # blocks before the window were dropped earlier
                names = names[rng.randrange(len(names) + 1):]
            new = [name for name in names if (group, name) not in pool]
            pool.update((group, name) for name in new)
            told.append(BlockStored(
                list(new), None, [], spec.block_size, None if prompt.adapter is None else 1, medium, prompt.adapter,
                group_idx=group, kv_cache_spec_kind=spec.kind,
                kv_cache_spec_sliding_window=spec.window if spec.kind in WINDOW else None))
        return told

    def evict(self, rng: random.Random, medium: str, n: int) -> list[Event]:
        pool = self.pools.setdefault(medium, set())
        gone = rng.sample(sorted(pool), min(n, len(pool)))
        pool.difference_update(gone)
        return [BlockRemoved([name], medium, group) for group, name in gone]

    def reset(self) -> list[Event]:
        self.pools.clear()
        return [AllBlocksCleared()]

    # ---- what it would hit

    def names(self, hashes: Sequence[int], size: int) -> list[int]:
        """BlockHashListWithBlockSize: a block has the name of the last hash in it."""
        step = size // self.hash_size
        return list(hashes[step - 1::step])

    def hit(self, hashes: Sequence[int], limit: int, mediums: Sequence[str]) -> int:
        """find_longest_cache_hit: tokens, at most limit."""
        there = set().union(*(self.pools.get(medium, set()) for medium in mediums))
        alike: dict[Spec, list[int]] = {}
        for group, spec in enumerate(self.specs):
            alike.setdefault(spec, []).append(group)
        parts = sorted(alike.items(), key=lambda part: part[0].kind not in FULL)
        eagle = [any(group in self.eagle for group in groups) for _, groups in parts]
        if len(parts) == 1 and len(self.specs) == 1:
            return self._find(parts[0], hashes, limit, there, eagle[0])
        hit, verified, first = limit, set[int](), dict[int, int]()
        while True:
            current = hit
            for at, part in enumerate(parts):
                spec = part[0]
                if spec.kind in FULL and at in first:
                    current = min(current, first[at])
                    continue
                drop = eagle[at] and at not in verified
                most = current
                if drop and spec.kind != "mamba":
                    most = min(current + spec.block_size, limit)
                new = self._find(part, hashes, most, there, drop)
                if drop:
                    verified.add(at)
                elif new < current:
                    verified.clear()
                current = first[at] = new
            if current >= hit:
                break
            hit = current
            if len(parts) == 2 and parts[0][0].kind in FULL:
                break
        return hit

    def _find(self, part: tuple[Spec, list[int]], hashes: Sequence[int], limit: int, there: set[tuple[int, int]],
              drop: bool) -> int:
        spec, groups = part
        size, align = spec.block_size, self.align
        cached = [all((group, name) in there for group in groups) for name in self.names(hashes, size)]
        most = min(limit // size, len(cached))
        if spec.kind in FULL:
            blocks = next((at for at in range(most) if not cached[at]), most)
            tokens = blocks * size
            if drop and tokens:
                tokens -= min(align, size)
            return tokens - tokens % align
        if spec.kind == "mamba":
            for at in range(most - 1, -1, -1):
                if cached[at] and (at + 1) * size % align == 0:
                    return (at + 1) * size
            return 0
        if spec.kind in WINDOW:
            return self._find_window(spec, cached, most, drop)
        assert spec.kind == "chunked_local_attention" and not drop and size == align
        blocks = limit // spec.window * spec.window // size
        while blocks < most and cached[blocks]:
            blocks += 1
        return blocks * size

    def _find_window(self, spec: Spec, cached: Sequence[bool], most: int, drop: bool) -> int:
        size, align = spec.block_size, self.align
        need = -(-(spec.window - 1) // size) + drop
        found, run = [False] * most, 0
        for at in range(most - 1, -1, -1):
            if not cached[at]:
                run = 0
                continue
            if run == 0 and size != align and (at if drop else at + 1) * size % align:
                continue
            found[at] = True
            run += 1
            if run >= need:
                blocks = at + run
                break
        else:
            blocks = run
            while size != align and blocks * size % align:
                blocks -= 1
        if drop and blocks:
            blocks -= 1
            while size != align and blocks * size % align:
                blocks -= 1
        return blocks * size


def random_engine(rng: random.Random, *, chunked: bool = False, eagle: bool = False) -> Engine:
    if chunked:
        size = rng.choice((16, 32))
        specs = [Spec("full_attention", size), Spec("chunked_local_attention", size, size * rng.randrange(1, 6))]
        if rng.random() < 0.5:
            specs.append(Spec("sliding_window", size, rng.randrange(1, 8 * size)))
    else:
        # A model has latents or it has not.
        whole, window = rng.choice(FULL), rng.choice(WINDOW)
        specs = [Spec(whole, rng.choice((16, 32, 64)))]
        for _ in range(rng.randrange(5)):
            kind = rng.choice((whole, window, window, "mamba", "mamba"))
            specs.append(Spec(kind, rng.choice((16, 16, 32, 48, 64)), rng.randrange(1, 300) if kind in WINDOW else 0))
            if rng.random() < 0.3:  # vLLM makes several groups of equal layers
                specs.append(specs[-1])
    rng.shuffle(specs)
    drafts = frozenset[int]()
    if eagle:
        drafts = frozenset(range(len(specs)) if rng.random() < 0.5 else rng.sample(range(len(specs)), 1))
    least = math.gcd(*(spec.block_size for spec in specs))
    return Engine(specs, least if len(specs) == 1 else rng.choice((least, least // 2, least // 4)), drafts)


def random_prompts(rng: random.Random, n: int, longest: int) -> list[Prompt]:
    """That begin alike, as prompts do; each adapter has hashes of its own."""
    prompts: list[Prompt] = []
    for _ in range(n):
        length = rng.randrange(1, longest)
        if prompts and rng.random() < 0.7:
            other = rng.choice(prompts)
            shared = other.hashes[:rng.randrange(len(other.hashes) + 1)]
            adapter = other.adapter
        else:
            shared, adapter = [], rng.choice((None, None, "a", "b"))
        prompts.append(Prompt(shared + [rng.getrandbits(64) for _ in range(max(0, length - len(shared)))], adapter))
    return [prompt for prompt in prompts if prompt.hashes]


def told_groups(engine: Engine) -> dict[int, Any]:
    from libkvbm.events import Group

    return {group: Group(spec.kind, spec.block_size, spec.window) for group, spec in enumerate(engine.specs)}
