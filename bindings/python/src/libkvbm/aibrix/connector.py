"""The connector: AIBrix's L2 backend on a manager of libkvbm.

All coroutines run on the event loop of AIBrix's L2 cache. Lookups are answered from memory; copies are submitted to
libkvbm's queue. The loop watches the queue's descriptor, so no thread of AIBrix's executor is occupied.

A key of AIBrix is bytes of any length; libkvbm's key is made from its 32-byte BLAKE2b digest. Everything else that a
block's bytes depend on is in the namespace (libkvbm.engine.facts.aibrix).
"""
from __future__ import annotations

import hashlib
import sys
import weakref
from concurrent.futures import Executor
from typing import Any, Awaitable, Callable, Optional, Sequence

import aibrix_kvcache
import torch
from aibrix_kvcache import envs
from aibrix_kvcache.l2.connectors import Connector, ConnectorFeature
from aibrix_kvcache.memory import MemoryRegion
from aibrix_kvcache.status import Status, StatusCodes

from ..constants import Status as Code
from ..engine import Aside, ConfigurationError, Identity, MissedSpeed
from ..engine.facts import vllm
from ..engine.facts.aibrix import canonical_of, check_engine, hashing, identity_of, model_of
from ..engine.tokens import NAME_BYTES
from ..errors import ForkedError, KvbmError
from ..key import Keys
from ..manager import Manager
from ..namespace import Namespace
from ..queue import Queue
from . import transfer
from .options import PREFIX, Options
from .regions import Region, Slabs
from .status import failure, status_of

# Of the time that AIBrix's manager waits, so that what came in time is reported before it gives up.
_SHARE_OF_TIMEOUT = 0.9


class Store:
    """Everything that is open between open() and close()."""

    def __init__(self, options: Options, identity: Identity) -> None:
        self.manager: Manager = options.configuration.open(identity.bytes)
        self.ns: Namespace = identity.namespace(self.manager, tenant=options.configuration.tenant,
                                                secret=options.configuration.secret)
        self.queue: Queue = self.manager.queue()
        self.slabs = Slabs(self.manager, self.ns, identity.bytes)
        self._named = options.tokens
        self.flights: weakref.WeakSet[Any] = weakref.WeakSet()

    def keys(self, keys: Sequence[bytes]) -> Keys:
        if self._named:
            return Keys.from_hashes(self.ns, b"".join(keys), NAME_BYTES)
        return Keys.from_hashes(self.ns, b"".join([hashlib.blake2b(key, digest_size=32).digest() for key in keys]), 32)

    def close(self) -> None:
        self.queue.close()  # cancels what is in flight and waits for it
        for flight in list(self.flights):
            flight.end()
        self.slabs.close()
        self.ns.close()
        self.manager.close()


class KvbmConnector(Connector[bytes, torch.Tensor]):  # type: ignore[misc]
    """See Connector of aibrix_kvcache.l2.connectors for the contract of each call."""

    def __init__(self, conn_id: str, options: Options, block_spec: Any, key_builder: Any = None) -> None:
        engine = vllm.here()
        check_engine(engine)
        if options.tokens:
            self.identity = canonical_of(options.model, block_spec, _ranks(), f"{PREFIX}IDENTITY=tokens")
        else:
            # Of an engine in this process more is known than an operator says.
            known = "" if engine is None else vllm.model_name(engine, options.model)
            self.identity = identity_of(str(aibrix_kvcache.__version__), model_of(options.model), block_spec, _ranks(),
                                        hashing(conn_id, key_builder, options.configuration.weak_hashes), known)
        self._options = options
        self._block_tokens: int = block_spec.block_ntokens
        self._store: Optional[Store] = None
        self._aside = Aside("libkvbm.aibrix")
        self._speed = MissedSpeed()

    @classmethod
    def from_envs(cls, conn_id: str, executor: Executor, **kwargs: Any) -> KvbmConnector:
        """AIBrix's executor is not needed. `block_spec` and `key_builder` are given by libkvbm.aibrix.install()."""
        options = Options.from_envs()
        if "addr" in kwargs:
            raise ConfigurationError("KVBM is no server to connect to: unset AIBRIX_KV_CACHE_OL_META_SERVICE_BACKEND; "
                                     f"other nodes are configured with node.peers in {PREFIX}SETTINGS")
        if kwargs.get("block_spec") is None:
            raise ConfigurationError("the block spec is not known: a KVBM connector is made by an L2Cache, after "
                                     "libkvbm.aibrix.install()")
        if not MemoryRegion.use_compact_layout():
            raise ConfigurationError("set AIBRIX_KV_CACHE_OL_TOKEN_VALIDATION_ENABLED to 0: libkvbm verifies every "
                                     "byte, and records with tokens have no fixed size")
        return cls(conn_id, options, kwargs["block_spec"], kwargs.get("key_builder"))

    @property
    def name(self) -> str:
        return "KVBM"

    @property
    def feature(self) -> ConnectorFeature:
        # rdma is what makes AIBrix register its slabs; it means nothing else to it.
        return ConnectorFeature(mput_mget=True, prefetch=True, rdma=True, zero_copy=self._options.zero_copy)

    @property
    def manager(self) -> Optional[Manager]:
        """The manager while it is open: for its stats() and metrics()."""
        return None if self._store is None else self._store.manager

    # ---- the connection

    def open(self) -> Any:
        """Makes the tiers. What is wrong with the configuration is an INVALID that says what to change."""
        if self._store is not None:
            return Status.ok()
        try:
            self._store = Store(self._options, self.identity)
        except ConfigurationError as error:
            return failure(StatusCodes.INVALID, str(error))
        except KvbmError as error:
            return status_of(error.status, error.message)
        return Status.ok()

    def close(self) -> Any:
        """Ends what is in flight as CANCELLED. Blocks in AIBrix's hands stay until they are released."""
        self._end()
        return Status.ok()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        store, self._store = self.__dict__.get("_store"), None
        if store is not None:
            store.close()

    def register_slabs(self, slabs: Sequence[torch.Tensor]) -> Any:
        """Attaches slabs, so that their regions are copied from and to in place."""
        def register(store: Store) -> Any:
            for slab in slabs:
                store.slabs.register(slab)
            return Status.ok()

        return self._run(register, StatusCodes.OK)

    # ---- blocks

    async def exists(self, key: bytes) -> Any:
        def exists(store: Store) -> Any:
            with store.manager.lookup(store.ns, store.keys([key]), no_use=True) as match:
                return Status.ok() if match else failure(StatusCodes.NOT_FOUND)

        return self._run(exists, StatusCodes.NOT_FOUND)

    async def get(self, key: bytes, mr: Any) -> Any:
        return (await self.mget([key], [mr]))[0]

    async def put(self, key: bytes, mr: Any) -> Any:
        return (await self.mput([key], [mr]))[0]

    async def delete(self, key: bytes) -> Any:
        def delete(store: Store) -> Any:
            store.manager.drop(store.ns, store.keys([key]))
            return Status.ok()

        return self._run(delete, StatusCodes.OK)

    def get_batches(self, keys: Sequence[Any], mrs: Sequence[Any], batch_size: int) -> Any:
        """One batch, whatever its size: after a batch that came in part, L2Cache 0.8.0 goes on with the next and counts
        its blocks as if they stood where the missing ones do. libkvbm has no limit that a batch could exceed."""
        return [list(zip(keys, mrs))] if keys else []

    async def mget(self, keys: Sequence[bytes], mrs: Sequence[Any]) -> Any:
        """A status for each key. What stands behind a block that did not come is NOT_FOUND: L2Cache 0.8.0 counts
        successes and takes that many from the front."""
        async def load(store: Store) -> Any:
            compute = self._speed.block_ns(1) if self._options.weigh else 0
            found = await transfer.load(store, keys, mrs, self._deadline_ns(len(keys)), compute)
            good = next((i for i, status in enumerate(found) if status < 0), len(found))
            self._speed.missed(keys[good:])
            behind = [failure(StatusCodes.NOT_FOUND) for _ in found[good + 1:]]
            return [status_of(status) for status in found[:good + 1]] + behind

        return await self._run_all(load, keys, StatusCodes.NOT_FOUND)

    async def mput(self, keys: Sequence[bytes], mrs: Sequence[Any]) -> Any:
        """A status for each key; one that is there already is OK."""
        async def put(store: Store) -> Any:
            self._speed.stored((key, 1) for key in keys)
            return [status_of(status) for status in await transfer.put(store, keys, mrs, self._deadline_ns(len(keys)))]

        return await self._run_all(put, keys, StatusCodes.DENIED)

    async def prefetch(self, keys: Any) -> None:
        """Brings blocks up into host memory. L2Cache 0.8.0 gives one key where the interface has a list."""
        names: list[bytes] = [keys] if isinstance(keys, bytes) else list(keys)

        async def prefetch(store: Store) -> list[Any]:
            await store.manager.prefetch_async(store.ns, store.keys(names), queue=store.queue)
            return []

        await self._run_all(prefetch, names, StatusCodes.OK)

    # ---- zero copy: regions are blocks of libkvbm's own memory

    async def allocate(self, key: bytes, length: int) -> Any:
        def allocate(store: Store) -> Any:
            if length != self.identity.bytes:
                return failure(StatusCodes.INVALID, f"a block has {self.identity.bytes} bytes, not {length}")
            return Status.ok(Region(key, store.manager.allocate(store.ns, 1), length))

        return self._run(allocate, StatusCodes.DENIED)

    async def seal(self, mr: Region) -> None:
        """From now on it is found, unless the key has come meanwhile; then this one goes."""
        store = self._store
        with mr.let_go() as blocks:
            if store is not None:
                blocks.complete([mr.length])
                blocks.register(store.ns, store.keys([mr.key]), unchained=True)

    async def drop(self, mr: Region) -> None:
        mr.let_go().release()

    async def acquire(self, key: bytes) -> Any:
        async def acquire(store: Store) -> Any:
            names = store.keys([key])
            for _ in range(2):
                with store.manager.lookup(store.ns, names, host_only=True) as match:
                    if match:
                        return [Status.ok(Region(key, match.blocks(0, 1), self.identity.bytes))]
                with store.manager.lookup(store.ns, names, no_use=True) as match:
                    if not match:
                        break
                await store.manager.prefetch_async(store.ns, names, queue=store.queue)
            return [failure(StatusCodes.NOT_FOUND)]

        return (await self._run_all(acquire, [key], StatusCodes.NOT_FOUND))[0]

    async def release(self, mr: Region) -> None:
        mr.let_go().release()

    # ---- what can go wrong

    def _deadline_ns(self, n_keys: int) -> int:
        per_token_ms = envs.AIBRIX_KV_CACHE_OL_L2_CACHE_PER_TOKEN_TIMEOUT_MS
        return int(n_keys * self._block_tokens * per_token_ms * 1_000_000 * _SHARE_OF_TIMEOUT)

    def _run(self, body: Callable[[Store], Any], aside: StatusCodes) -> Any:
        """body(store) as a Status, whatever happens; `aside` where the library is not used any more."""
        store, reason = self._store, self._aside.reason
        if reason is not None or store is None:
            return self._unused(aside)
        try:
            return body(store)
        except Exception as error:
            return self._failed(error, aside)

    async def _run_all(self, body: Callable[[Store], Awaitable[Any]], keys: Sequence[Any], aside: StatusCodes) -> Any:
        """As _run, for coroutines; a list of statuses, one for each key."""
        store = self._store
        if self._aside.reason is not None or store is None:
            return [self._unused(aside) for _ in keys]
        try:
            return await body(store)
        except Exception as error:
            return [self._failed(error, aside) for _ in keys]

    def _unused(self, aside: StatusCodes) -> Any:
        if self._aside.reason is None:
            return failure(StatusCodes.CANCELLED, "the connector is not open")
        return Status.ok() if aside is StatusCodes.OK else failure(aside, self._aside.reason)

    def _failed(self, error: Exception, aside: StatusCodes) -> Any:
        if not isinstance(error, KvbmError):
            return failure(StatusCodes.ERROR, f"{type(error).__name__}: {error}")
        if error.status == Code.INTERNAL or isinstance(error, ForkedError):
            self._aside.step(str(error))
            return self._unused(aside)
        return status_of(error.status, str(error))


def _ranks() -> int:
    """Ranks of the tensor-parallel group: vLLM's, if this is one of its processes; else all that torch knows of."""
    state = sys.modules.get("vllm.distributed.parallel_state")
    if state is not None:
        try:
            return int(state.get_tensor_model_parallel_world_size())
        except AssertionError:
            pass  # no group was made
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
