"""Batches of blocks between AIBrix's regions and libkvbm: one operation for each slab that a batch touches."""
from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Sequence

from ..cache import Cache
from ..constants import NO_BLOCK, Priority, Status
from ..errors import KvbmError
from ..key import Keys
from ..queue import submit_async
from .regions import Flight, Place

if TYPE_CHECKING:
    from .connector import Store


@dataclass(frozen=True)
class Move:
    """A prepared operation: items of the batch in one slab, and where each one's status will be among the call's."""

    cache: Cache
    items: Sequence[int]
    call: Any
    first: Optional[int] = None  # of loads: statuses are counted from this item; of stores one follows another


async def load(store: Store, keys: Sequence[bytes], regions: Sequence[Any], timeout_ns: int,
               compute_ns: int = 0) -> list[int]:
    """A status of libkvbm for each key, up to the first missing one; all later keys are misses. Blocks that take longer
    to load than to compute (`compute_ns` per block) are misses too. 0: all blocks found are loaded."""
    with store.manager.lookup(store.ns, store.keys(keys)) as match:
        places, found = _places(store, regions[:match.hits])
        found += [int(Status.MISS)] * (len(keys) - len(found))
        moves = []
        groups = _by_cache(places)
        for cache, items in groups:
            # The keys of a match are taken in order: what is in another slab is skipped.
            first = items[0][0]
            ids = array("I", [NO_BLOCK]) * (items[-1][0] - first + 1)
            for i, block in items:
                ids[i - first] = block
            call = cache._load(match, ids, first, False, 0, 0, False, None, timeout_ns,
                               compute_ns * match.hits // len(items), None, False)
            moves.append(Move(cache, [i for i, _ in items], call, first))
        await _run(store, moves, regions, found)
    return [int(Status.MISS) if compute_ns and status == Status.DEADLINE else status for status in found]


async def put(store: Store, keys: Sequence[bytes], regions: Sequence[Any], timeout_ns: int) -> list[int]:
    """A status of libkvbm for each key."""
    names = store.keys(keys)
    places, found = _places(store, regions)
    moves = []
    for cache, items in _by_cache(places):
        # Keys of one batch follow each other in a prompt; a selection of them does not.
        whole = len(items) == len(names)
        chosen = names if whole else Keys([names[i] for i, _ in items])
        blocks = array("I", [block for _, block in items])
        call = cache._store(chosen, blocks, Priority.NORMAL, None, not whole, None, timeout_ns, None, None)
        moves.append(Move(cache, [i for i, _ in items], call))
    await _run(store, moves, regions, found)
    return found


def _places(store: Store, regions: Sequence[Any]) -> tuple[list[Optional[Place]], list[int]]:
    """Where the regions are, and a status for each: what is no region of a block's size is not tried."""
    places: list[Optional[Place]] = []
    found: list[int] = []
    for region in regions:
        try:
            places.append(store.slabs.place(region))
            found.append(int(Status.OK))
        except KvbmError as error:
            places.append(None)
            found.append(error.status)
    return places, found


def _by_cache(places: Sequence[Optional[Place]]) -> list[tuple[Cache, list[tuple[int, int]]]]:
    """For each slab: (which of the batch, which block of the slab)."""
    groups: dict[int, tuple[Cache, list[tuple[int, int]]]] = {}
    for i, place in enumerate(places):
        if place is not None:
            groups.setdefault(id(place.cache), (place.cache, []))[1].append((i, place.block))
    return list(groups.values())


async def _run(store: Store, moves: Sequence[Move], regions: Sequence[Any], found: list[int]) -> None:
    """Submits all, waits for all, and writes their statuses into `found`. If it is cancelled so are they, and the
    regions stay until they have ended."""
    refused: dict[int, int] = {}
    futures = []
    for number, move in enumerate(moves):
        flight = Flight([regions[i] for i in move.items])
        store.flights.add(flight)
        try:
            futures.append(submit_async(store.queue, move.call, statuses=move.call.statuses,
                                        keep=(move.cache._handle, flight)))
        except KvbmError as error:
            flight.end()  # the error's traceback keeps this frame, and would keep the flight
            refused[number] = error.status
    results = iter(await asyncio.gather(*futures, return_exceptions=True))
    for number, move in enumerate(moves):
        whole = refused[number] if number in refused else _status(next(results))
        statuses = memoryview(move.call.statuses)
        for k, i in enumerate(move.items):
            status = statuses[k if move.first is None else i - move.first]
            # Below zero nothing of the operation was done, whatever its items say.
            found[i] = whole if whole < 0 <= status else status


def _status(result: Any) -> int:
    """Of an operation as a whole, from what its future had."""
    if isinstance(result, KvbmError):
        return result.status
    if isinstance(result, BaseException):
        raise result
    return int(result.status)
