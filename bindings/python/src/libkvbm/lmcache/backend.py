"""The storage backend of LMCache inside the engine's process: storage_plugins.

LMCache allocates chunks in its own CPU memory and this backend keeps them in libkvbm's tiers. A chunk at the end of a
prompt may be shorter than the others: how many tokens it has follows from its bytes.
"""
from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, cast

from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.storage_backend.abstract_backend import StorageBackendInterface

from ..engine import ConfigurationError
from ..engine.facts import vllm
from ..engine.facts.lmcache import check_engine, chunk_identity, engine_hashing
from ..engine.weights import weights_of
from . import FOUND
from .batch import Found, Item, Name
from .options import Options, digest, require

if TYPE_CHECKING:
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.memory_management import MemoryObj
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

_NEEDED: dict[str, Sequence[str]] = {
    "contains": ("key", "pin"), "exists_in_put_tasks": ("key",), "get_blocking": ("key",), "pin": ("key",),
    "batched_submit_put_task": ("keys", "objs", "transfer_spec", "on_complete_callback"), "unpin": ("key",),
    "remove": ("key", "force"), "batched_get_blocking": ("keys",), "batched_contains": ("keys", "pin"),
    "batched_async_contains": ("lookup_id", "keys", "pin"), "batched_get_non_blocking": ("lookup_id", "keys"),
    "get_allocator_backend": (), "close": (),
}


class KvbmStorageBackend(StorageBackendInterface):  # type: ignore[misc]
    """Options are extra_config["libkvbm"]. Thread: any."""

    def __init__(self, config: LMCacheEngineConfig, metadata: LMCacheMetadata,
                 local_cpu_backend: Optional[LocalCPUBackend], loop: Optional[asyncio.AbstractEventLoop] = None,
                 dst_device: str = "cpu", **_unused: Any) -> None:
        require(StorageBackendInterface, _NEEDED)
        super().__init__(dst_device)
        if local_cpu_backend is None:
            raise ConfigurationError("LMCache gave no CPU memory to load into: set max_local_cpu_size")
        if config.use_layerwise:
            raise ConfigurationError("libkvbm keeps whole chunks: set use_layerwise to false")
        given = (config.extra_config or {}).get("libkvbm", {})
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"extra_config.libkvbm is {given!r}: a table of options is expected")
        options = Options.of(given)
        self._memory, self._metadata = local_cpu_backend, metadata
        library = options.configuration
        self._made_by = engine_hashing(config, library.weak_hashes)
        engine = vllm.here()
        check_engine(engine)
        self._model = (vllm.model_name(engine, library.revision) if engine is not None
                       else weights_of(metadata.model_name, told=library.revision))
        self._replicated = options.replicated
        self._objects = options.open("libkvbm under LMCache")
        self._lock = threading.Lock()
        self._putting: dict[CacheEngineKey, int] = {}
        self._pins: dict[CacheEngineKey, Found] = {}

    def __str__(self) -> str:
        return "KvbmStorageBackend"

    # ---- what is there

    def contains(self, key: CacheEngineKey, pin: bool = False) -> bool:
        return self.batched_contains([key], pin) == 1

    def batched_contains(self, keys: list[CacheEngineKey], pin: bool = False) -> int:
        """Leading keys that are there; with `pin` they are held until unpin."""
        return self._objects.call(lambda: self._prefix(keys, pin), 0)

    async def batched_async_contains(self, lookup_id: str, keys: list[CacheEngineKey], pin: bool = False) -> int:
        return self.batched_contains(keys, pin)

    def exists_in_put_tasks(self, key: CacheEngineKey) -> bool:
        with self._lock:
            return key in self._putting

    def pin(self, key: CacheEngineKey) -> bool:
        return self.contains(key, pin=True)

    def unpin(self, key: CacheEngineKey) -> bool:
        with self._lock:
            found = self._pins.pop(key, None)
        if found is not None:
            found.release()
        return found is not None

    def _prefix(self, keys: Sequence[CacheEngineKey], pin: bool) -> int:
        found = self._objects.lookup([self._name(key) for key in keys])
        found.release()
        n = next((i for i, size in enumerate(found.sizes) if size == 0), len(keys))
        return self._pin(keys[:n], found.sizes[:n]) if pin else n

    def _pin(self, keys: Sequence[CacheEngineKey], sizes: Sequence[int]) -> int:
        """Each key has a hold of its own: LMCache unpins them one by one."""
        for i, (key, size) in enumerate(zip(keys, sizes)):
            with self._lock:
                if key in self._pins:
                    continue
            held = self._objects.lookup([self._name(key)], [size])
            if not held.sizes[0]:
                return i
            with self._lock:
                double = self._pins.setdefault(key, held) is not held
            if double:
                held.release()
        return len(keys)

    # ---- put

    def batched_submit_put_task(self, keys: Sequence[CacheEngineKey], objs: list[MemoryObj], transfer_spec: Any = None,
                                on_complete_callback: Optional[Callable[[CacheEngineKey], None]] = None,
                                ) -> Optional[list[Future[None]]]:
        pairs = [(key, obj) for key, obj in zip(keys, objs, strict=True) if self._begin(key)]
        if not pairs:
            return None
        future: Future[None] = Future()
        items = self._items(pairs)

        def done(good: list[bool]) -> None:
            del items[:]
            for (key, obj), ok in zip(pairs, good):
                obj.ref_count_down()
                with self._lock:
                    self._putting.pop(key, None)
                if ok and on_complete_callback is not None:
                    on_complete_callback(key)
            future.set_result(None)

        for _, obj in pairs:
            obj.ref_count_up()
        if len(items) != len(pairs):
            done([False] * len(pairs))
        else:
            self._objects.store(list(items), done)
        return [future]

    def _begin(self, key: CacheEngineKey) -> bool:
        if self._replicated and key.worker_id != 0:
            return False
        with self._lock:
            return self._putting.setdefault(key, id(key)) == id(key)

    def _items(self, pairs: Sequence[tuple[CacheEngineKey, MemoryObj]]) -> list[Item]:
        return self._objects.call(
            lambda: [Item(self._name(key), memoryview(obj.byte_array).cast("B")) for key, obj in pairs], [])

    # ---- get

    def get_blocking(self, key: CacheEngineKey) -> Optional[MemoryObj]:
        return self.batched_get_blocking([key])[0]

    def batched_get_blocking(self, keys: list[CacheEngineKey]) -> list[Optional[MemoryObj]]:
        """A chunk for each key, None where there is none or where its bytes are not right."""
        found = self._objects.call(lambda: self._objects.lookup([self._name(key) for key in keys]), None)
        if found is None:
            return [None] * len(keys)
        try:
            chunks = [self._allocate(size) if size else None for size in found.sizes]
            pairs = [(key, chunk) for key, chunk in zip(keys, chunks) if chunk is not None]
            good = iter(self._load(pairs))
        finally:
            found.release()
        return [chunk if chunk is not None and _kept(chunk, next(good)) else None for chunk in chunks]

    async def batched_get_non_blocking(self, lookup_id: str, keys: list[CacheEngineKey],
                                       transfer_spec: Any = None) -> list[MemoryObj]:
        """The leading chunks that came."""
        chunks = await asyncio.to_thread(self.batched_get_blocking, keys)
        n = next((i for i, chunk in enumerate(chunks) if chunk is None), len(chunks))
        for chunk in chunks[n:]:
            if chunk is not None:
                chunk.ref_count_down()
        return cast("list[MemoryObj]", chunks[:n])

    def _load(self, pairs: Sequence[tuple[CacheEngineKey, MemoryObj]]) -> list[bool]:
        items = self._items(pairs)
        if len(items) != len(pairs):
            return [False] * len(pairs)
        result: Future[list[bool]] = Future()
        self._objects.load(items, result.set_result)
        return result.result()

    def _allocate(self, size: int) -> Optional[MemoryObj]:
        """Memory of LMCache's for a chunk of so many bytes; None where that is no whole number of tokens."""
        shapes, dtypes = self._metadata.get_shapes(), self._metadata.get_dtypes()
        full = sum(shape.numel() * dtype.itemsize for shape, dtype in zip(shapes, dtypes))
        tokens = size * self._metadata.chunk_size // full
        if tokens < self._metadata.chunk_size:
            shapes = self._metadata.get_shapes(tokens)
        if sum(shape.numel() * dtype.itemsize for shape, dtype in zip(shapes, dtypes)) != size:
            return None
        fmt = MemoryFormat.KV_MLA_FMT if self._metadata.use_mla else MemoryFormat.KV_2LTD
        return self._memory.allocate(shapes, dtypes, fmt, busy_loop=False)

    # ---- care

    def remove(self, key: CacheEngineKey, force: bool = True) -> bool:
        return self._objects.call(lambda: self._objects.delete([self._name(key)])[0], False)

    def get_allocator_backend(self) -> LocalCPUBackend:
        return self._memory

    def close(self) -> None:
        with self._lock:
            pins, self._pins = self._pins, {}
        for found in pins.values():
            found.release()
        self._objects.close()

    def _name(self, key: CacheEngineKey) -> Name:
        """Everything in LMCache's key names the chunk: model, world size, worker, element type and tags."""
        worker = 0 if self._replicated else key.worker_id
        identity = chunk_identity(FOUND, f"{key.model_name} {self._model}", str(key.dtype).removeprefix("torch."),
                                  self._metadata.get_shapes(), self._metadata.use_mla, self._metadata.chunk_size, worker,
                                  key.world_size, self._objects.piece_bytes, self._made_by)
        tags = [text for tag in key.tags or () for text in tag]
        return Name(self._objects.space(identity), digest(key.chunk_hash, *tags))


def _kept(chunk: MemoryObj, good: bool) -> bool:
    if not good:
        chunk.ref_count_down()
    return good
