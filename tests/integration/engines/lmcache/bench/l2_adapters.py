"""How quickly LMCache's L2 adapters store and load, libkvbm's beside LMCache's own, in one process and in turns; a
memcpy of the same bytes is the measure. Figures are medians of several rounds.

    python l2_adapters.py DIRECTORY [--objects 8] [--size-mib 4] [--rounds 9]

LMCache's `fs` adapter ends a store when its file is written to the page cache. libkvbm ends it when the host tier has
the bytes, hashed, and writes them to the disk later. Each loads from the place that has the bytes then.
"""
from __future__ import annotations

import argparse
import ctypes
import os
import select
import statistics
import time
from pathlib import Path
from typing import Any, Callable

import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.internal_api import L1MemoryDesc
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj


def object_over(tensor: torch.Tensor) -> TensorMemoryObj:
    shape = torch.Size([tensor.numel()])
    meta = MemoryObjMetadata(shape=shape, dtype=torch.uint8, address=0, phy_size=tensor.numel(), ref_count=1,
                             fmt=MemoryFormat.KV_2LTD, shapes=[shape], dtypes=[torch.uint8])
    return TensorMemoryObj(raw_data=tensor, metadata=meta, parent_allocator=None)


def until(fd: int, ask: Callable[[], Any]) -> Any:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while True:
        if not poller.poll(60_000):
            raise SystemExit("an adapter did not answer within 60 s")
        os.eventfd_read(fd)
        result = ask()
        if result is not None:
            return result


class Round:
    """One adapter: a store of new keys, a lookup, and a load of what was stored."""

    def __init__(self, name: str, adapter: Any, objects: list[Any], rooms: list[Any]) -> None:
        self.name, self.adapter, self.objects, self.rooms = name, adapter, objects, rooms
        self.seconds: dict[str, list[float]] = {"store": [], "lookup": [], "load": []}

    def run(self, number: int) -> None:
        a, n, size = self.adapter, len(self.objects), self.objects[0].get_size()
        keys = [ObjectKey(chunk_hash=(number * n + i).to_bytes(32, "big"), model_name="m", kv_rank=1 << 24)
                for i in range(n)]
        layouts = {0: MemoryLayoutDesc([torch.Size([size])], [torch.uint8])}
        begun = time.perf_counter()
        task = a.submit_store_task(keys, self.objects)
        stored = until(a.get_store_event_fd(), lambda: a.pop_completed_store_tasks().get(task))
        self.seconds["store"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        task = a.submit_lookup_and_lock_task(keys, layouts)
        found = until(a.get_lookup_and_lock_event_fd(), lambda: a.query_lookup_and_lock_result(task))
        self.seconds["lookup"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        task = a.submit_load_task(keys, self.rooms)
        loaded = until(a.get_load_event_fd(), lambda: a.query_load_result(task))
        self.seconds["load"].append(time.perf_counter() - begun)
        a.submit_unlock(keys)
        good = stored.is_successful() and all(found.test(i) and loaded.test(i) for i in range(n))
        if not good or any(not torch.equal(o.raw_data, r.raw_data) for o, r in zip(self.objects, self.rooms)):
            raise SystemExit(f"{self.name}: what came back is not what was stored")
        a.delete(keys)  # the next round finds memory and files that were used before
        for room in self.rooms:
            room.raw_data.zero_()


def adapters(directory: Path, room: int, desc: L1MemoryDesc) -> dict[str, Any]:
    kvbm = {"type": "plugin", "module_path": "libkvbm.lmcache", "class_name": "KvbmL2Adapter"}
    host = {"weigh": False, "revision": "1", "settings": {"host.capacity": str(room)}}
    described = {
        "libkvbm, host": kvbm | {"adapter_params": host},
        "libkvbm, host + disk": kvbm | {"adapter_params": host | {"disk": str(directory / "kvbm"),
                                                                   "disk_capacity": "4GiB"}},
        "libkvbm, native client": {"type": "native_plugin", "module_path": "libkvbm.lmcache",
                                   "class_name": "KvbmClient", "adapter_params": host},
        "LMCache fs": {"type": "fs", "base_path": str(directory / "fs")},
        "LMCache fs_native": {"type": "fs_native", "base_path": str(directory / "fs_native")},
    }
    (directory / "fs").mkdir(parents=True, exist_ok=True)
    (directory / "fs_native").mkdir(parents=True, exist_ok=True)
    made = {}
    for name, config in described.items():
        kind = get_l2_adapter_config_class(str(config["type"]))
        made[name] = create_l2_adapter(kind.from_dict(config), desc)
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--objects", type=int, default=8)
    parser.add_argument("--size-mib", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    size = int(given.size_mib * (1 << 20))
    total = size * given.objects
    arena = torch.randint(0, 256, (2 * total,), dtype=torch.uint8)
    desc = L1MemoryDesc(ptr=arena.data_ptr(), size=arena.numel(), align_bytes=4096)
    views = [object_over(arena[i * size:(i + 1) * size]) for i in range(2 * given.objects)]
    rounds = [Round(name, adapter, views[:given.objects], views[given.objects:])
              for name, adapter in adapters(given.directory, 3 * total, desc).items()]
    copies = []
    for number in range(given.rounds + 2):  # the first two are not counted: memory is touched for the first time
        begun = time.perf_counter()
        ctypes.memmove(arena.data_ptr() + total, arena.data_ptr(), total)
        copies.append(time.perf_counter() - begun)
        for each in rounds:
            each.run(number)
    copy = statistics.median(copies[2:])
    print(f"{given.objects} objects of {given.size_mib:g} MiB, median of {given.rounds}; memcpy "
          f"{total / copy / 1e9:.2f} GB/s. Times memcpy's, and lookup in us an object:")
    for each in rounds:
        median = {what: statistics.median(seconds[2:]) for what, seconds in each.seconds.items()}
        print(f"{each.name:24} store {median['store'] / copy:6.2f}  load {median['load'] / copy:6.2f}  "
              f"lookup {median['lookup'] / given.objects * 1e6:7.1f}")
        each.adapter.close()


if __name__ == "__main__":
    main()
