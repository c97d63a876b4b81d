"""The L2 adapter of LMCache's multi-process server: {"type": "plugin"}.

LMCache's L1 memory is described to the library once, and objects move between it and libkvbm's tiers without a copy
in between. What a lookup finds is held until LMCache unlocks it, so that it is still there when it is loaded.
"""
from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any, Optional, Sequence

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface

from ..engine import ConfigurationError
from ..engine.facts.lmcache import hashing_of, object_identity
from . import FOUND
from .batch import Found, Item, Name
from .models import Models
from .options import Options, digest, require

if TYPE_CHECKING:
    from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
    from lmcache.v1.distributed.internal_api import L1MemoryDesc
    from lmcache.v1.memory_management import MemoryObj

_NEEDED: dict[str, Sequence[str]] = {
    "submit_store_task": ("keys", "objects"), "submit_lookup_and_lock_task": ("keys", "group_layout_descs"),
    "submit_load_task": ("keys", "objects"), "submit_unlock": ("keys",), "pop_completed_store_tasks": (),
    "query_lookup_and_lock_result": ("task_id",), "query_load_result": ("task_id",), "get_store_event_fd": (),
    "get_lookup_and_lock_event_fd": (), "get_load_event_fd": (), "delete": ("keys",), "get_usage": (), "close": (),
    "_notify_keys_stored": ("keys", "sizes"), "_notify_keys_accessed": ("keys",),
    "_notify_keys_deleted": ("keys", "sizes"),
}


class _Lock:
    """The blocks found by one lookup, until each of its keys is unlocked."""

    def __init__(self, found: Found, keys: int) -> None:
        self._found = found
        self._keys = keys

    def less(self) -> None:
        self._keys -= 1
        if self._keys == 0:
            self._found.release()


class KvbmL2Adapter(L2AdapterInterface):  # type: ignore[misc]
    """Thread: any; LMCache calls it from its store and its prefetch controller."""

    def __init__(self, params: dict[str, object], l1_memory_desc: Optional[L1MemoryDesc] = None,
                 **_unused: Any) -> None:
        require(L2AdapterInterface, _NEEDED)
        options = Options.of(params)
        arena = None
        if l1_memory_desc is not None and l1_memory_desc.ptr and l1_memory_desc.size > 0:
            memory = (ctypes.c_ubyte * l1_memory_desc.size).from_address(l1_memory_desc.ptr)
            arena = memoryview(memory).cast("B")
        self._replicated = options.replicated
        self._weak_hashes = options.configuration.weak_hashes
        self._models = Models(options.configuration.revision)
        self._objects = options.open("libkvbm under LMCache", arena)
        stats = self._objects.stats()
        super().__init__(max_capacity_bytes=0 if stats is None else sum(tier.capacity_bytes for tier in stats.tiers))
        self._store_fd, self._lookup_fd, self._load_fd = (_eventfd() for _ in range(3))
        self._lock = threading.Lock()
        self._next = 0
        self._open = True
        self._stored: dict[int, L2StoreResult] = {}
        self._looked_up: dict[int, Bitmap] = {}
        self._loaded: dict[int, Bitmap] = {}
        self._locks: dict[ObjectKey, list[_Lock]] = {}
        # Bytes of objects stored by this process and reported to LMCache, which must count each once.
        self._told: dict[ObjectKey, int] = {}
        # Sizes of objects, for lookups without a layout.
        self._shapes: dict[tuple[str, int, int], tuple[str, int]] = {}

    # ---- events: LMCache reads them

    def get_store_event_fd(self) -> int:
        return self._store_fd

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._lookup_fd

    def get_load_event_fd(self) -> int:
        return self._load_fd

    # ---- store

    def submit_store_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        task = self._task()
        mine = [i for i, key in enumerate(keys) if self._writes(key)]
        items = self._items([keys[i] for i in mine], [objects[i] for i in mine])
        sizes, held = [item.view.nbytes for item in items], list(objects)

        def done(good: list[bool]) -> None:
            del items[:], held[:]  # the objects' memory is LMCache's again
            there = [i for i, ok in zip(mine, good) if ok]
            nbytes = self._tell_stored([keys[i] for i in there], [size for size, ok in zip(sizes, good) if ok])
            self._finish(self._store_fd, self._stored, task, L2StoreResult(len(there) == len(mine), nbytes))

        if len(items) != len(mine):
            done([False] * len(mine))
        else:
            self._objects.store(list(items), done)
        return task

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        with self._lock:
            stored = dict(self._stored)
            self._stored.clear()  # this very one: a result may be on its way into it
        return stored

    # ---- lookup and lock

    def submit_lookup_and_lock_task(self, keys: list[ObjectKey],
                                    group_layout_descs: dict[int, MemoryLayoutDesc]) -> int:
        task, bitmap = self._task(), Bitmap(len(keys))
        hits: list[int] = self._objects.call(lambda: self._find(keys, group_layout_descs or {}), [])
        for i in hits:
            bitmap.set(i)
        self._finish(self._lookup_fd, self._looked_up, task, bitmap)
        return task

    def query_lookup_and_lock_result(self, task_id: int) -> Optional[Bitmap]:
        with self._lock:
            return self._looked_up.pop(task_id, None)

    def submit_unlock(self, keys: list[ObjectKey]) -> None:
        with self._lock:
            ended = [locks.pop() for key in keys if (locks := self._locks.get(key))]
            for key in keys:
                if not self._locks.get(key, True):
                    del self._locks[key]
            for lock in ended:
                lock.less()

    def _find(self, keys: list[ObjectKey], layouts: dict[int, MemoryLayoutDesc]) -> list[int]:
        shapes = [self._shape(key, layouts) for key in keys]
        named = [(i, name) for i, (element, size) in enumerate(shapes) if size
                 and (name := self._name(keys[i], element)) is not None]
        asked, names = [i for i, _ in named], [name for _, name in named]
        found = self._objects.lookup(names, [shapes[i][1] for i in asked])
        hits = [i for i, size in zip(asked, found.sizes) if size]
        if hits:
            lock = _Lock(found, len(hits))
            with self._lock:
                for i in hits:
                    self._locks.setdefault(keys[i], []).append(lock)
        return hits

    # ---- load

    def submit_load_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        task = self._task()
        items, held = self._items(keys, objects), list(objects)

        def done(good: list[bool]) -> None:
            del items[:], held[:]
            bitmap = Bitmap(len(keys))
            for i, ok in enumerate(good):
                if ok:
                    bitmap.set(i)
            loaded = [key for key, ok in zip(keys, good) if ok]
            if loaded:
                self._notify_keys_accessed(loaded)
            self._finish(self._load_fd, self._loaded, task, bitmap)

        if len(items) != len(keys):
            done([False] * len(keys))
        else:
            self._objects.load(list(items), done)
        return task

    def query_load_result(self, task_id: int) -> Optional[Bitmap]:
        with self._lock:
            return self._loaded.pop(task_id, None)

    # ---- care

    def delete(self, keys: list[ObjectKey]) -> None:
        def body() -> None:
            with self._lock:
                told = [(key, self._told.pop(key)) for key in keys if key in self._told]
            names = [self._name(key, self._shape(key, {})[0]) for key in keys]
            self._objects.delete([name for name in names if name is not None])
            if told:
                self._notify_keys_deleted([key for key, _ in told], [size for _, size in told])
        self._objects.call(body, None)

    def get_usage(self) -> AdapterUsage:
        """The library's own figures, which know of its evictions; LMCache's accounts only add up what was stored."""
        usage, stats = super().get_usage(), self._objects.stats()
        if stats is None:
            return usage
        return AdapterUsage(total_bytes_used=sum(tier.payload_bytes for tier in stats.tiers),
                            total_capacity_bytes=sum(tier.capacity_bytes for tier in stats.tiers),
                            bytes_by_cache_salt=usage.bytes_by_cache_salt)

    def report_status(self) -> dict[str, object]:
        aside, stats = self._objects.aside, self._objects.stats()
        status: dict[str, object] = {"is_healthy": self._open and not aside.stepped, "type": "libkvbm"}
        if aside.reason is not None:
            status["stepped_aside"] = aside.reason
        if stats is not None:
            status["tiers"] = [{"capacity_bytes": tier.capacity_bytes, "payload_bytes": tier.payload_bytes,
                                "blocks": tier.blocks, "evictions": tier.evictions, "damaged": tier.damaged,
                                "disabled": tier.disabled} for tier in stats.tiers]
            status["weighed"] = {"loads": stats.loads_weighed, "not_started": stats.loads_not_started,
                                 "left_blocks": stats.blocks_left, "predicted_s": stats.load_predicted_ns / 1e9,
                                 "actual_s": stats.load_actual_ns / 1e9}
        return status

    def close(self) -> None:
        with self._lock:
            if not self._open:
                return
            locks, self._locks = self._locks, {}
        for key_locks in locks.values():
            for lock in key_locks:
                lock.less()
        self._objects.close()
        with self._lock:
            self._open = False
            for fd in (self._store_fd, self._lookup_fd, self._load_fd):
                os.close(fd)

    # ---- names

    def _writes(self, key: ObjectKey) -> bool:
        return not self._replicated or key.kv_rank & 0x00FF0000 == 0

    def _name(self, key: ObjectKey, element: str) -> Optional[Name]:
        """None for an object without a unique name: it is neither stored nor looked up."""
        try:
            made_by = hashing_of(len(key.chunk_hash), self._weak_hashes)
        except ConfigurationError as error:
            self._objects.aside.step(str(error))
            return None
        model = self._models.of(key.model_name)
        if model is None:
            return None
        identity = object_identity(FOUND, model, element, key.kv_rank, key.object_group_id, self._replicated,
                                   self._objects.piece_bytes, made_by)
        return Name(self._objects.space(identity), digest(key.cache_salt, key.chunk_hash))

    def _items(self, keys: Sequence[ObjectKey], objects: Sequence[MemoryObj]) -> list[Item]:
        """Fewer than keys, if one has no name."""
        def body() -> list[Item]:
            items = []
            for key, obj in zip(keys, objects, strict=True):
                view = memoryview(obj.byte_array).cast("B")
                element = _elements(obj.get_dtypes(), obj.get_shapes())
                self._shapes[key.model_name, key.kv_rank, key.object_group_id] = (element, view.nbytes)
                name = self._name(key, element)
                if name is not None:
                    items.append(Item(name, view))
            return items
        return self._objects.call(body, [])

    def _shape(self, key: ObjectKey, layouts: dict[int, MemoryLayoutDesc]) -> tuple[str, int]:
        """Element types and shapes, and bytes of an object; 0 bytes where nothing is known, which nothing is found by."""
        layout = layouts.get(key.object_group_id)
        if layout is None:
            return self._shapes.get((key.model_name, key.kv_rank, key.object_group_id), ("", 0))
        size = sum(shape.numel() * dtype.itemsize for shape, dtype in zip(layout.shapes, layout.dtypes))
        return _elements(layout.dtypes, layout.shapes), size

    # ---- results

    def _task(self) -> int:
        with self._lock:
            self._next += 1
            return self._next

    def _finish(self, fd: int, results: dict[int, Any], task: int, result: object) -> None:
        with self._lock:
            if self._open:
                results[task] = result
                os.eventfd_write(fd, 1)

    def _tell_stored(self, keys: list[ObjectKey], sizes: list[int]) -> int:
        """Tells LMCache what is there now; returns the bytes that are new."""
        with self._lock:
            new = [0 if key in self._told else size for key, size in zip(keys, sizes)]
            self._told.update(zip(keys, sizes))
        if keys:
            self._notify_keys_stored(keys, new)
        return sum(new)


def _elements(dtypes: Sequence[object], shapes: Sequence[Sequence[int]]) -> str:
    return ",".join(f"{str(dtype).removeprefix('torch.')}{list(shape)}" for dtype, shape in zip(dtypes, shapes))


def _eventfd() -> int:
    return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
