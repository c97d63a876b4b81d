"""The storage backend inside the engine's process, made by LMCache's own launcher over LMCache's own CPU memory."""
from __future__ import annotations

import asyncio
import random
import threading
import time
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any, Iterator

import pytest

with warnings.catch_warnings():  # LMCache's dependencies have their own
    warnings.simplefilter("ignore")
    pytest.importorskip("lmcache", reason="LMCache is not installed: docs/engines/lmcache.md says how")
    import torch
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.memory_management import MemoryFormat
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend import storage_plugin_launcher
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

pytestmark = pytest.mark.filterwarnings("default")

CHUNK, LAYERS, HEADS, DIM = 16, 4, 2, 32


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def metadata(worker: int = 0, **changes: Any) -> Any:
    return LMCacheMetadata(**{"model_name": "a/model", "world_size": 2, "local_world_size": 2, "worker_id": worker,
                              "local_worker_id": worker, "kv_dtype": torch.bfloat16, "chunk_size": CHUNK,
                              "kv_shape": (LAYERS, 2, CHUNK, HEADS, DIM)} | changes)


def launched(loop: asyncio.AbstractEventLoop, options: dict[str, object], meta: Any = None,
             **config: Any) -> tuple[Any, Any]:
    """The backend, or None where LMCache's launcher was refused, and LMCache's CPU memory."""
    extra = {"storage_plugin.kvbm.module_path": "libkvbm.lmcache",
             "storage_plugin.kvbm.class_name": "KvbmStorageBackend",
             "libkvbm": {"block_bytes": 4096, "weigh": False, "weak_hashes": True, "revision": "1",
                         "settings": {"host.capacity": "8MiB"}} | options}
    configured = LMCacheEngineConfig.from_defaults(chunk_size=CHUNK, local_cpu=True, max_local_cpu_size=0.05,
                                                   storage_plugins=["kvbm"], extra_config=extra, **config)
    meta = meta or metadata()
    memory = LocalCPUBackend(configured, meta, dst_device="cpu")
    backends: OrderedDict[str, Any] = OrderedDict()
    storage_plugin_launcher(configured, meta, loop, memory, "cpu", backends)
    return backends.get("kvbm"), memory


@pytest.fixture
def pair(loop: asyncio.AbstractEventLoop) -> Iterator[tuple[Any, Any]]:
    backend, memory = launched(loop, {})
    yield backend, memory
    backend.close()


def key(number: int, worker: int = 0, **changes: Any) -> Any:
    return CacheEngineKey(**{"model_name": "a/model", "world_size": 2, "worker_id": worker, "chunk_hash": number,
                             "dtype": torch.bfloat16} | changes)


def chunk(memory: Any, seed: int, tokens: int = CHUNK) -> Any:
    obj = memory.allocate(torch.Size([2, LAYERS, tokens, HEADS * DIM]), torch.bfloat16, MemoryFormat.KV_2LTD)
    view = memoryview(obj.byte_array).cast("B")
    view[:] = random.Random(seed).randbytes(len(view))
    return obj


def put(backend: Any, keys: list[Any], chunks: list[Any]) -> list[Any]:
    done: list[Any] = []
    for future in backend.batched_submit_put_task(keys, chunks, on_complete_callback=done.append) or []:
        future.result(30)
    return done


def test_chunks_come_back_byte_for_byte(pair: Any) -> None:
    backend, memory = pair
    keys, chunks = [key(i) for i in range(3)], [chunk(memory, i) for i in range(3)]
    assert put(backend, keys, chunks) == keys
    assert backend.batched_contains([*keys, key(9)]) == 3 and not backend.contains(key(9))
    loaded = backend.batched_get_blocking([*keys, key(9)])
    assert loaded[3] is None
    assert [bytes(o.byte_array) for o in loaded[:3]] == [bytes(o.byte_array) for o in chunks]
    assert loaded[0].get_shape() == chunks[0].get_shape() and loaded[0].get_dtype() == torch.bfloat16
    assert [o.get_ref_count() for o in chunks] == [1, 1, 1]


@pytest.mark.parametrize("tokens", [1, 5, CHUNK - 1])
def test_a_short_last_chunk_has_its_own_shape(pair: Any, tokens: int) -> None:
    backend, memory = pair
    short = chunk(memory, 1, tokens)
    put(backend, [key(1)], [short])
    loaded = backend.get_blocking(key(1))
    assert list(loaded.get_shape()) == [2, LAYERS, tokens, HEADS * DIM]
    assert bytes(loaded.byte_array) == bytes(short.byte_array)


def test_another_model_worker_world_or_tag_is_a_miss(pair: Any) -> None:
    backend, memory = pair
    put(backend, [key(1)], [chunk(memory, 1)])
    for other in (key(1, worker=1), key(1, model_name="b"), key(1, world_size=4), key(1, dtype=torch.float16),
                  key(1, request_configs={"lmcache.tag.user": "u"}), key(2)):
        assert not backend.contains(other) and backend.get_blocking(other) is None


def test_pinned_chunks_stay_until_they_are_unpinned(loop: asyncio.AbstractEventLoop) -> None:
    backend, memory = launched(loop, {"settings": {"host.capacity": "256KiB"}})
    put(backend, [key(1)], [chunk(memory, 1)])
    assert backend.contains(key(1), pin=True) and backend.pin(key(1))
    for i in range(10, 60):
        obj = chunk(memory, i)
        put(backend, [key(i)], [obj])
        obj.ref_count_down()
    assert backend.get_blocking(key(1)) is not None
    assert backend.unpin(key(1)) and not backend.unpin(key(1))
    for i in range(60, 110):
        obj = chunk(memory, i)
        put(backend, [key(i)], [obj])
        obj.ref_count_down()
    assert not backend.contains(key(1))
    backend.close()


def test_removed_chunks_are_gone(pair: Any) -> None:
    backend, memory = pair
    put(backend, [key(1)], [chunk(memory, 1)])
    assert backend.remove(key(1)) and not backend.remove(key(1)) and not backend.contains(key(1))


def test_the_async_calls_give_the_leading_chunks(pair: Any, loop: asyncio.AbstractEventLoop) -> None:
    backend, memory = pair
    put(backend, [key(1), key(2)], [chunk(memory, 1), chunk(memory, 2)])
    keys = [key(1), key(2), key(3)]
    assert asyncio.run_coroutine_threadsafe(backend.batched_async_contains("id", keys, True), loop).result(30) == 2
    loaded = asyncio.run_coroutine_threadsafe(backend.batched_get_non_blocking("id", keys), loop).result(30)
    assert len(loaded) == 2


def test_a_fresh_backend_finds_what_lies_on_the_disk(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    backend, memory = launched(loop, {"disk": str(tmp_path / "kv")})
    sizes = [CHUNK, CHUNK, 5]
    chunks = [chunk(memory, i, tokens) for i, tokens in enumerate(sizes)]
    put(backend, [key(i) for i in range(3)], chunks)
    backend.close()
    backend, _ = launched(loop, {"disk": str(tmp_path / "kv")})
    loaded = backend.batched_get_blocking([key(i) for i in range(3)])
    assert [o is not None and bytes(o.byte_array) for o in loaded[:2]] == [bytes(o.byte_array) for o in chunks[:2]]
    assert bytes(backend.get_blocking(key(2)).byte_array) == bytes(chunks[2].byte_array)
    backend.close()


def test_a_fresh_backend_finds_what_a_store_has(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    options = {"stores": f"file://{tmp_path}/kv?poll=20ms&publish=10ms"}
    backend, memory = launched(loop, options)
    put(backend, [key(1)], [chunk(memory, 1)])
    backend.close()
    backend, _ = launched(loop, options)
    end = time.monotonic() + 60
    while not backend.contains(key(1)) and time.monotonic() < end:  # until it has read what is there
        time.sleep(0.01)
    assert bytes(backend.get_blocking(key(1)).byte_array) == bytes(chunk(memory, 1).byte_array)
    backend.close()


def test_replicated_kv_is_written_by_worker_zero_and_read_by_all(loop: asyncio.AbstractEventLoop) -> None:
    backend, memory = launched(loop, {"replicated": True})
    assert put(backend, [key(1, worker=1)], [chunk(memory, 1)]) == []
    put(backend, [key(1, worker=0)], [chunk(memory, 1)])
    assert backend.contains(key(1, worker=1))
    backend.close()


def test_a_refused_start_leaves_lmcache_without_the_backend(loop: asyncio.AbstractEventLoop) -> None:
    assert launched(loop, {"no_such": 1})[0] is None
    assert launched(loop, {}, use_layerwise=True)[0] is None
    assert launched(loop, {"revision": None})[0] is None  # nothing tells which weights these are
    # Inside the engine LMCache keeps 64 bits of any hash.
    for algorithm in ("builtin", "sha256_cbor"):
        assert launched(loop, {"weak_hashes": False}, pre_caching_hash_algorithm=algorithm)[0] is None
