"""Models with KV in several pools: the prefixes that all pools can restore."""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransferResult

Present = Callable[[Any, Sequence[str]], list[bool]]


def leading(there: Sequence[bool]) -> int:
    return next((i for i, ok in enumerate(there) if not ok), len(there))


def fold(keys: Sequence[str], kv_pages: int, transfers: Optional[Sequence[Any]], present: Present) -> Any:
    """The longest prefix that every pool can restore, each pool's own boundary, and all prefixes that can be restored:
    pools that keep only the end of a prefix leave holes, and the ranks of a group intersect these sets."""
    hits: dict[Any, int] = {PoolName.KV: kv_pages} if kv_pages else {}
    restorable = set(range(1, kv_pages + 1))
    for transfer in transfers or ():
        if transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS:
            covered = _groups(keys[:kv_pages], transfer, present)
            if covered:
                hits[transfer.name] = covered
            continue  # a second form of the same pages: it says what it has, and takes nothing away
        if not restorable:
            continue
        usable = _usable(transfer, present(transfer.name, keys[:kv_pages]))
        if usable:
            hits[transfer.name] = max(usable)
        restorable &= usable
    ends = sorted(restorable)
    return PoolTransferResult(ends[-1] if ends else 0, hits, ends)


def _usable(transfer: Any, there: Sequence[bool]) -> set[int]:
    """Lengths of prefix at which the pool has what it needs."""
    if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
        return set(range(1, leading(there) + 1))
    if transfer.hit_policy != PoolHitPolicy.TRAILING_PAGES:
        raise ValueError(f"pool {transfer.name} has a hit policy that libkvbm does not know: {transfer.hit_policy!r}")
    window = max(1, len(transfer.keys or ()))
    usable, run = set(), 0
    for i, ok in enumerate(there):
        run = run + 1 if ok else 0
        if run >= min(window, i + 1):
            usable.add(i + 1)
    return usable


def _groups(keys: Sequence[str], transfer: Any, present: Present) -> int:
    """Pages of the leading blocks with complete groups. A group is named by the last keys of its block, or by the
    transfer's own keys in order."""
    block, group = int(transfer.block_pages), int(transfer.group_pages)
    if block < 1 or group < 1:
        return 0
    blocks = len(keys) // block
    if transfer.keys:
        names = list(transfer.keys)[:blocks * group]
        blocks = len(names) // group
    else:
        names = [key for i in range(blocks) for key in keys[max((i + 1) * block - group, 0):(i + 1) * block]]
        group = min(group, block)
    return leading(present(transfer.name, names)) // group * block
