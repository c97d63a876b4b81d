"""The storage backend that SGLang's cache controllers call."""
from __future__ import annotations

import functools
import logging
import threading
import time
from typing import Any, Callable, Optional, Sequence, TypeVar

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult

from ..engine import Aside, MissedSpeed
from ..engine.facts.sglang import check_parallel
from ..errors import ClosedError, KvbmError, MissError, NoRoomError, PeerError
from ..manager import Manager
from . import hybrid
from .gate import Gate
from .names import digests
from .options import Options
from .pages import is_logical
from .pool import PoolStore
from .pools import Pools
from .rates import Rates
from .told import Told, told_of

T = TypeVar("T")
_log = logging.getLogger("libkvbm.sglang")
_KV = "kv"


class KvbmStorage(HiCacheStorage):  # type: ignore[misc]
    """Pages of SGLang's host pools, kept by libkvbm and read and written in place. Made by SGLang for each scheduler
    process; the manager is made when the host pools are known. Wrong configuration is refused at that point at the
    latest; a library that fails later steps aside, and everything is a miss from then on. Thread: any."""

    def __init__(self, storage_config: Any, kwargs: Optional[dict[str, Any]] = None, **more: Any) -> None:
        self._config = storage_config
        self._options = Options.of(storage_config.extra_config, storage_config.tp_size * storage_config.pp_size
                                   * getattr(storage_config, "attn_cp_size", 1))
        check_parallel(storage_config)
        self._pools = Pools(storage_config, self._options)
        self._registered: dict[str, Any] = {}
        self._stores: dict[str, PoolStore] = {}
        self._manager: Optional[Manager] = None
        self._told: Optional[Told] = None
        self._open_lock = threading.Lock()
        self._gate = Gate()
        self._aside = Aside("the kvbm backend of SGLang", _log)
        self._speed = MissedSpeed()
        self._rates = Rates(bool(getattr(storage_config, "enable_storage_metrics", False)))

    # ---- host pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self.register_mem_host_pool_v2(mem_pool_host, _KV)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        name = _name(host_pool_name)
        with self._open_lock:
            self._registered[name] = host_pool
            if self._manager is not None and not is_logical(host_pool):
                self._stores[name] = self._pools.store(self._manager, name, host_pool)

    def on_host_pools_registered(self) -> None:
        self._opened()

    # ---- pages of the anchor pool, in place

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        hits = self._run(lambda: self._hits(keys), 0)
        self._speed.missed(keys[hits:])
        return hits

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        # Of a hybrid model a part of a load would be of no use.
        compute = self._speed.block_ns(1) if self._options.weigh and len(self._registered) == 1 else 0
        done = self._run(lambda: self._load(_KV, keys, host_indices, compute), [False] * len(keys))
        self._speed.missed(key for key, ok in zip(keys, done) if not ok)
        return done

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        self._speed.stored((key, 1) for key in keys)
        return self._run(lambda: self._save(_KV, keys, host_indices, extra_info, chained=True), [False] * len(keys))

    # ---- several pools

    def batch_exists_v2(self, keys: list[str], pool_transfers: Optional[Sequence[Any]] = None,
                        extra_info: Any = None) -> Any:
        def body() -> Any:
            logical = is_logical(self._registered.get(_KV))
            pages = len(keys) if logical and pool_transfers else self._hits(keys)
            return hybrid.fold(keys, pages, pool_transfers, self._present)
        return self._run(body, PoolTransferResult(0, {}, []))

    def batch_get_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        return self._each(transfers, lambda t, keys: self._load(_name(t.name), keys, t.host_indices))

    def batch_set_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        return self._each(transfers, lambda t, keys: self._save(_name(t.name), keys, t.host_indices, None,
                                                                chained=False))

    def _each(self, transfers: Sequence[Any], work: Callable[[Any, list[str]], list[bool]]) -> dict[str, list[bool]]:
        done = {}
        for transfer in transfers:
            keys = list(transfer.keys or ())
            done[transfer.name] = self._run(functools.partial(work, transfer, keys), [False] * len(keys))
        return done

    # ---- flat pages

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Optional[Any]:
        return self._run(lambda: self._get(key, target_location), None)

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[Optional[Any]]:
        """Ends at the first page that is not there: the caller has no use for those behind it."""
        found: list[Optional[Any]] = []
        for key, target in zip(keys, target_locations or [None] * len(keys)):
            found.append(self.get(key, target))
            if found[-1] is None:
                break
        return found + [None] * (len(keys) - len(found))

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self._run(lambda: self._set(key, value), False)

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None,
                  target_sizes: Any = None) -> bool:
        return values is not None and all(self.set(key, value) for key, value in zip(keys, values, strict=True))

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    # ---- the backend

    def clear(self) -> bool:
        """Forgets what this rank's pools have stored, in every tier."""
        def body() -> bool:
            self._opened()
            for store in self._stores.values():
                for record in store.records:
                    record.ns.reset()
            return True
        return self._run(body, False)

    def get_stats(self) -> Any:
        """SGLang's StorageMetrics; its attribute kvbm has the library's own counters."""
        manager = self._manager
        return self._rates.take(None if manager is None else self._run(manager.stats, None))

    def metrics(self) -> str:
        """The library's metrics as Prometheus text."""
        manager = self._manager
        return "" if manager is None else self._run(manager.metrics, "")

    def close(self) -> None:
        """Waits for calls that are under way. What was stored is in its tiers then; later calls find nothing."""
        self._gate.close()
        with self._open_lock:
            for store in self._stores.values():
                store.close()
            self._stores = {}
            manager, self._manager = self._manager, None
            told, self._told = self._told, None
        if told is not None:
            told.close()
        if manager is not None:
            try:
                manager.flush(self._options.timeout_ns)
            except KvbmError as error:
                _log.warning("not everything that was stored reached its disk: %s", error)
            manager.close()

    def _opened(self) -> None:
        if self._manager is not None:
            return
        with self._open_lock:
            if self._manager is None and self._registered:
                pools = {name: pool for name, pool in self._registered.items() if not is_logical(pool)}
                manager = self._options.library.open(self._pools.block_bytes(pools))
                self._stores = {name: self._pools.store(manager, name, pool) for name, pool in pools.items()}
                self._told = told_of(manager, self._config, self._options.events, self._stores.get(_KV))
                self._manager = manager

    def _run(self, body: Callable[[], T], fallback: T) -> T:
        """body(), or the fallback: where the backend is closed, has stepped aside or does so now, and where these
        pages could not be had."""
        if self._aside.stepped or not self._gate.enter():
            return fallback
        try:
            return body()
        except (MissError, NoRoomError, PeerError) as error:
            _log.debug("%s", error)
        except ClosedError as error:
            if not self._gate.closed:
                self._aside.step(str(error))
        except (KvbmError, OSError, MemoryError) as error:
            self._aside.step(str(error) or type(error).__name__)
        finally:
            self._gate.leave()
        return fallback

    def _store(self, name: str) -> Optional[PoolStore]:
        self._opened()
        return self._stores.get(name)

    def _hits(self, keys: Sequence[str]) -> int:
        store = self._store(_KV)
        return 0 if store is None or not keys else store.hits(digests(keys))

    def _present(self, name: Any, keys: Sequence[str]) -> list[bool]:
        store = self._store(_name(name))
        return [False] * len(keys) if store is None or not keys else store.present(digests(keys))

    def _load(self, name: str, keys: Sequence[str], host_indices: Any, compute_ns: int = 0) -> list[bool]:
        store = self._store(name)
        if store is None or not keys or host_indices is None:
            return [self._is_logical(name)] * len(keys)
        start = time.perf_counter()
        done = store.load(digests(keys), host_indices, compute_ns)
        self._rates.loaded(sum(done), store.bytes, time.perf_counter() - start)
        return done

    def _save(self, name: str, keys: Sequence[str], host_indices: Any, extra_info: Any, *,
              chained: bool) -> list[bool]:
        store = self._store(name)
        if store is None or not keys or host_indices is None:
            return [self._is_logical(name)] * len(keys)
        if not self._pools.writes(name, store.pool):
            return [True] * len(keys)  # another rank of the group stores the same bytes
        before = getattr(extra_info, "prefix_keys", None)
        parent = digests(before[-1:]) if before else None
        start = time.perf_counter()
        done = store.store(digests(keys), host_indices, parent=parent, chained=chained)
        if self._told is not None and name == _KV and chained:
            self._told.describe(keys, before[-1] if before else None)
        self._rates.stored(sum(done), store.bytes, time.perf_counter() - start)
        return done

    def _is_logical(self, name: str) -> bool:
        pool = self._registered.get(name)
        return pool is not None and is_logical(pool)

    def _get(self, key: str, target: Any) -> Optional[Any]:
        store = self._store(_KV)
        if store is None:
            return None
        page = store.pool.get_dummy_flat_data_page() if target is None else target
        if not _is_flat_page(page):
            return None
        return page if store.load_page(digests([key]), page) else None

    def _set(self, key: str, value: Any) -> bool:
        store = self._store(_KV)
        if store is None:
            return False
        if not self._pools.writes(_KV, store.pool):
            return True
        if not isinstance(value, torch.Tensor):
            return False
        page = value.detach().to(device="cpu").contiguous()
        return store.store_page(digests([key]), page)


def _is_flat_page(page: Any) -> bool:
    return isinstance(page, torch.Tensor) and page.device.type == "cpu" and page.is_contiguous()


def _name(name: Any) -> str:
    return str(getattr(name, "value", name))
