"""Cost of the calls through this layer: medians, one line of JSON."""
import json
import mmap
import random
import statistics
import time
from typing import Callable

import libkvbm

MIB = 1 << 20


def median_ns(work: Callable[[], object], calls: int, before: Callable[[], object] = lambda: None) -> float:
    times = []
    for i in range(calls + 20):
        before()
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times[20:])


def small(context: libkvbm.Context) -> dict[str, float]:
    with libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=64 * MIB) as manager, \
            libkvbm.Namespace(manager, "bench") as ns:
        every = libkvbm.Keys.chain(ns, range(1024 * 16), 16)
        with manager.allocate(ns, 1024) as blocks:
            blocks.complete()
            blocks.register(ns, every)
        keys = every[:256]

        def lookup() -> None:
            manager.lookup(ns, keys).release()

        with manager.lookup(ns, keys) as match, match.blocks() as held:
            return {"lookup_256_ns": median_ns(lookup, 4000), "view_256_ns": median_ns(held.views, 2000)}


def large(context: libkvbm.Context) -> dict[str, float]:
    # At a page, and written to, in every language: copies to other addresses, or of pages that are not there yet, take
    # another time.
    kv = mmap.mmap(-1, 32 * MIB)
    kv[:] = random.Random(1).randbytes(32 * MIB)
    with libkvbm.Manager(context, block_bytes=MIB, host_capacity_bytes=64 * MIB) as manager, \
            libkvbm.Namespace(manager, "bench") as ns, \
            libkvbm.Cache(manager, ns, 32, tensors=[kv]) as cache:
        keys = libkvbm.Keys.chain(ns, range(16 * 16), 16)
        ids = memoryview(bytes(b"".join(i.to_bytes(4, "little") for i in range(16)))).cast("I")
        store = median_ns(lambda: cache.store(keys, ids), 200, lambda: manager.drop(ns, keys))
        with cache.lookup(keys) as match:
            load = median_ns(lambda: cache.load(match, ids), 200)
        return {"store_1MiB_ns": store / 16, "load_1MiB_ns": load / 16}


with libkvbm.Context() as context:
    print(json.dumps({"language": "python", **{k: round(v) for k, v in (small(context) | large(context)).items()}}))
