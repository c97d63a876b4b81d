"""A caller's code for mypy --strict. Not run: ./test checks it."""
from __future__ import annotations

import asyncio
import concurrent.futures
from typing import assert_type

import numpy as np

import libkvbm

context = libkvbm.Context({"host.capacity": "1GiB", "threads": 2, "share": False})
manager = libkvbm.Manager(context, tiers=[libkvbm.Tier("/somewhere", 1 << 30, libkvbm.Admit.ON_EVICTION)])
geometry = libkvbm.Geometry(16, [libkvbm.Component(libkvbm.ComponentKind.ATTENTION, libkvbm.Element.BF16, 32, 8, 128)])
ns = libkvbm.Namespace(manager, "model", geometry=geometry, secret=bytes(32))
tensor = np.zeros((4, 4096), np.uint8)
cache = libkvbm.Cache(manager, ns, 4, tensors=[tensor, bytearray(9), libkvbm.Tensor(tensor, block_stride=4096)])
keys = libkvbm.Keys.chain(ns, np.arange(64, dtype=np.uint32), 16, extras=[b"salt", None, None, None])
assert_type(keys[0], bytes)
assert_type(keys[1:], libkvbm.Keys)
assert_type([bytes(key) for key in keys], list[bytes])
assert_type(cache.store(keys, [0, 1, 2, 3]).status, int)
assert_type(cache.store([bytes(16)], np.zeros(1, np.int32)), libkvbm.Outcome)
with cache.lookup(keys, mode=libkvbm.Lookup.EACH) as match:
    assert_type(match, libkvbm.Match)
    assert_type(match.items()[0].tier, libkvbm.TierNumber)
    assert_type(cache.load_future(match, range(4)), "concurrent.futures.Future[libkvbm.Completion]")
with manager.allocate(ns, 2) as blocks, blocks.view(0) as view:
    view[:4] = b"abcd"
    np.frombuffer(view, np.uint8)


async def awaited() -> None:
    assert_type(await cache.store_async(keys, [0, 1, 2, 3]), libkvbm.Completion)
    assert_type(manager.prefetch_async(ns, keys), "asyncio.Future[libkvbm.Completion]")


try:
    manager.flush(1_000_000)
except libkvbm.DeadlineError as error:
    assert_type(error.name, str)

assert_type(libkvbm.codec.encode(tensor, "default", element=libkvbm.Element.BF16, row=4096), bytes)
assert_type(libkvbm.codec.decode(b"", into=tensor), int)
cache.store(keys, "0123")  # type: ignore[arg-type]
cache.store(5, [1])  # type: ignore[arg-type]
libkvbm.Namespace(manager, 5)  # type: ignore[arg-type]
