"""A secondary tier of vLLM's own tiered offloading: vLLM moves blocks between the device and a pool in host memory, and
this tier between that pool and everything that libkvbm has below it. A block that does not come back whole is given
back as failed, and vLLM computes it."""
from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Collection, Iterable, Mapping, Optional, Sequence

from . import compat

compat.check(compat.TIER)

from vllm.v1.kv_offload.base import (  # noqa: E402
    LookupResult, Medium, OffloadingMetricMetadata, ReqContext, RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob  # noqa: E402
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # noqa: E402

from ..cache import Cache, Tensor  # noqa: E402
from ..constants import Lookup, Status  # noqa: E402
from ..dispatch import Completion  # noqa: E402
from ..engine import Configuration, ConfigurationError, Identity, PrefillSpeed, Speed  # noqa: E402
from ..engine.configuration import flag_of  # noqa: E402
from ..namespace import Namespace  # noqa: E402
from .adapters import adapter_here  # noqa: E402
from .identity import Running, identity_of  # noqa: E402
from .metrics import definitions, observed  # noqa: E402
from .pace import REST_NS, Pace  # noqa: E402
from .pages import being_started, chosen, pages_identity  # noqa: E402
from .store import Store, keys_of, log  # noqa: E402

OPTIONS = ("identity", "load_timeout_s", "locality", "weigh")
LAYOUT = "row of vLLM's host pool: worker after worker, of each tensor after tensor"


@dataclass
class _Request:
    """State of a request: its adapter, its failed blocks, which are not offered to it again, and its stored blocks, by
    group and position."""

    adapter: bytes = b""
    failed: set[bytes] = field(default_factory=set)
    stored: dict[tuple[bytes, int], bytes] = field(default_factory=dict)


class KvbmTier(SecondaryTierManager):  # type: ignore[misc]
    """Configured in secondary_tiers of kv_connector_extra_config: {"type": "KvbmTier", "module_path": "libkvbm.vllm",
    ...}, where ... are the options of libkvbm.engine.Configuration and load_timeout_s (10)."""

    medium = Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 backpressure_detector: Any = None, **options: Any) -> None:
        super().__init__(offloading_spec=offloading_spec, primary_kv_view=primary_kv_view, tier_type=tier_type,
                         backpressure_detector=backpressure_detector)
        self._timeout_ns = timeout_of(options)
        self._weigh = flag_of(options, "weigh")
        self.speed: Speed = PrefillSpeed()  # KvbmOffloadingConnector gives it that of its engine
        self._config = offloading_spec.config
        (self._rows, _), (self._row_bytes, _) = _of_two(primary_kv_view.shape), _of_two(primary_kv_view.strides)
        self._groups = len(self._config.groups)
        self._chunk_tokens = self._config.groups[0].tokens_per_block * self._config.cache.blocks_per_chunk
        library = Configuration.of(options, also=("events", *OPTIONS))
        self._engine = Running.here(self._config.groups[0].tokens_per_block, library)
        self._pages = self._pages_of(options, library)
        self._store = Store("libkvbm's tier", options, self._row_bytes, also=OPTIONS)
        if self._engine.unfit is not None:
            self._store.aside.step(self._engine.unfit)
        self._queue = self._store.manager.queue()
        self._cache: Optional[Cache] = None
        self._ns: Optional[Namespace] = None
        self._running: dict[int, list[bytes]] = {}
        self._requests: dict[int, ReqContext] = {}
        self._done: deque[JobResult] = deque()
        self._pace = Pace()
        self._looked_at = 0.0
        library = self._store.configuration
        if library.disk is None and not library.stores:
            self.medium, self.cache_hit_source = Medium.CPU, CacheHitSource.HOST
        log.info("libkvbm's tier: %d rows of %d bytes%s%s", self._rows, self._row_bytes,
                 f", on disk in {library.disk}" if library.disk else "",
                 f", and in {len(library.stores)} stores" if library.stores else "")

    # ---- lookups: from memory, or "ask again"

    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        ns = self._ns
        if ns is None or self._store.aside.stepped:
            return LookupResult.MISS
        state = req_context.get_state(_Request)
        if state is not None and bytes(key) in state.failed:
            return LookupResult.MISS
        found = self._store.find(ns, bytes(keys_of(ns, [bytes(key)], _adapter(req_context))))
        return LookupResult.RETRY if found is None else LookupResult.HIT if found else LookupResult.MISS

    # ---- jobs

    def submit_store(self, job_metadata: TransferJob) -> None:
        keys, rows, before = self._in_order(job_metadata)
        adapter = _adapter(job_metadata.req_context)

        def body() -> None:
            ns, cache = self._ns, self._cache
            if ns is None or cache is None:
                raise ConfigurationError("vLLM stores before it has a request")
            names = keys_of(ns, keys, adapter)
            parent = None if before is None else bytes(keys_of(ns, [before], adapter))
            if self._groups == 1:
                self._store.describe(ns, names, keys, before)
            cache.store_submit(names, rows, self._queue, user_data=job_metadata.job_id, parent=parent,
                               unchained=self._groups > 1)

        self._submit(job_metadata, keys, body)

    def submit_load(self, job_metadata: TransferJob) -> None:
        # The front of a prompt first: of a load that is late that is what made it.
        found = sorted((job_metadata.req_context.get_offload_key_position(key) or 0, bytes(key), row)
                       for key, row in zip(job_metadata.keys, job_metadata.chunk_ids.tolist()))
        keys, rows = [key for _, key, _ in found], [row for _, _, row in found]
        adapter = _adapter(job_metadata.req_context)

        def body() -> None:
            ns, cache = self._ns, self._cache
            if ns is None or cache is None:
                raise ConfigurationError("vLLM loads before it has a request")
            with cache.lookup(keys_of(ns, keys, adapter), mode=Lookup.EACH) as match:
                if not match:
                    self._finish(job_metadata.job_id, False)
                    return
                cache.load_submit(match, rows, self._queue, user_data=job_metadata.job_id,
                                  timeout_ns=self._timeout_ns, compute_block_ns=self._compute_ns())

        self._submit(job_metadata, keys, body)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        # Done after a fault too: operations submitted before end in their time, and vLLM waits for them.
        rest = self._pace.idle() and bool(self._requests) and not self._done
        for completion in self._queue.wait(REST_NS, 1024) if rest else self._queue.poll(1024):
            self._completed(completion)
        self._pace.rested()
        finished = []
        while self._done:
            finished.append(self._done.popleft())
        return finished

    def has_pending_work(self) -> bool:
        return bool(self._running) or bool(self._done)

    def drain_jobs(self) -> None:
        end = time.monotonic_ns() + 2 * self._timeout_ns
        while self._running:
            for completion in self._queue.wait(100_000_000):
                self._completed(completion)
            if time.monotonic_ns() > end:
                # The library may still write to vLLM's memory, so the only option is to wait.
                log.warning("libkvbm's tier waits for %d jobs", len(self._running))
                end += self._timeout_ns

    # ---- requests

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        if self._ns is None:
            self._store.aside.call(self._open, None)
        req_context.set_state(_Request(adapter_here()))
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        return

    def invalidate(self) -> None:
        """Nothing that was stored is found any more: the weights have changed in place."""
        self.drain_jobs()
        self._store.invalidate([] if self._ns is None else [self._ns])

    # ---- seeing it work

    @classmethod
    def build_metric_definitions(cls, extra_config: Mapping[str, Any]) -> dict[str, OffloadingMetricMetadata]:
        return definitions()

    def get_stats(self) -> Any:
        """Once a second; vLLM asks every step."""
        now = time.monotonic()
        if now - self._looked_at < 1:
            return None
        self._looked_at = now
        before = self._store.stats
        self._store.look_after()
        return observed(self._store.stats, before, self._store.aside)

    def shutdown(self) -> None:
        self.drain_jobs()
        # vLLM unmaps its pool after this: nothing may name it any more.
        if self._cache is not None:
            self._cache.close()
        self._cache = self._ns = None
        self._store.close()

    # ---- inside

    def _pages_of(self, options: Mapping[str, Any], library: Configuration) -> Optional[Identity]:
        """The identity that all hooks of vLLM have alike, where that is asked for and a row is a block's pages."""
        if chosen(options, ("engine", "pages")) != "pages":
            return None
        size = self._config.worker_kv_bytes_per_block
        if self._groups != 1 or self._config.cache.blocks_per_chunk != 1 or self._row_bytes != size:
            raise ConfigurationError(f"identity pages needs one group of layers, and rows of one block: there are "
                                     f"{self._groups} groups, and rows of {self._row_bytes} bytes for blocks of {size}")
        group = self._config.groups[0]
        if size % len(group.layer_names) != 0:
            raise ConfigurationError(f"identity pages needs layers of one size: a block of {len(group.layer_names)} has "
                                     f"{size} bytes")
        return pages_identity(being_started(), library, group.layer_names, group.tokens_per_block, size)

    def _open(self) -> None:
        asked = self._store.configuration
        identity = self._pages or identity_of(self._config, self._engine, LAYOUT, self._row_bytes, asked.weak_hashes)
        ns = identity.namespace(self._store.manager, tenant=asked.tenant, secret=asked.secret)
        # Records are cut where pages end: the hooks that share them must say alike where that is.
        n = 1 if self._pages is None else len(self._config.groups[0].layer_names)
        page, whole = self._row_bytes // n, memoryview(self._primary_kv_view).cast("B")
        tensors = [Tensor(whole[i * page:], self._row_bytes, page) for i in range(n)]
        self._cache = Cache(self._store.manager, ns, self._rows, tensors=tensors)
        self._ns = ns

    def _in_order(self, job: TransferJob) -> tuple[list[bytes], list[int], Optional[bytes]]:
        """A job's blocks in the order of the prompt, and the one before them: the host tier evicts the ends of prompts
        before their beginnings, without which they are of no use."""
        found = sorted((job.req_context.get_offload_key_position(key) or 0, bytes(key), row)
                       for key, row in zip(job.keys, job.chunk_ids.tolist()))
        request = job.req_context.get_state(_Request)
        before = None
        if request is not None and self._groups == 1:
            before = request.stored.get((found[0][1][-4:], found[0][0] - self._chunk_tokens))
            request.stored.update(((key[-4:], place), key) for place, key, _ in found)
        return [key for _, key, _ in found], [row for _, _, row in found], before

    def _compute_ns(self) -> int:
        """Computing time of a row; 0: it is loaded in any case. With several groups of layers a part of a load would be
        useless."""
        return self.speed.block_ns(self._chunk_tokens) if self._weigh and self._groups == 1 else 0

    def _submit(self, job: TransferJob, keys: list[bytes], body: Any) -> None:
        self._running[job.job_id] = keys
        if job.is_promotion:
            self._requests[job.job_id] = job.req_context
        if self._store.aside.stepped:
            self._finish(job.job_id, False)
            return

        def guarded() -> None:
            try:
                body()
            except Exception as error:  # an exception of this thread would be lost, and the job would never end
                self._store.failed(error)
                self._finish(job.job_id, False)

        self._store.soon(guarded)

    def _completed(self, completion: Completion) -> None:
        keys = self._running[completion.user_data]
        statuses: Sequence[int] = completion.item_status if completion.item_status is not None else ()
        good = [key for key, status in zip(keys, statuses) if status == Status.OK]
        if completion.status < 0:
            good = []
        self._finish(completion.user_data, completion.status == Status.OK and len(good) == len(keys), good,
                     completion.service_ns / 1e9, completion.bytes)

    def _finish(self, job_id: int, success: bool, good: Collection[bytes] = (), seconds: Optional[float] = None,
                moved: Optional[int] = None) -> None:
        keys = self._running.pop(job_id)
        request = self._requests.pop(job_id, None)
        if request is not None and not success:
            state = request.get_state(_Request)
            if state is not None:
                state.failed.update(set(keys) - set(good))
        self._done.append(JobResult(job_id=job_id, success=success, successful_keys=list(good) if good else None,
                                    transfer_time=seconds, transfer_bytes=moved))


def _adapter(request: ReqContext) -> bytes:
    state = request.get_state(_Request)
    return b"" if state is None else state.adapter


def _of_two(axes: Optional[tuple[int, ...]]) -> tuple[int, int]:
    if axes is None or len(axes) != 2:
        raise ConfigurationError("vLLM's host pool is not rows of bytes: this vLLM is another one than 0.32 or 0.33")
    return axes[0], axes[1]


def timeout_of(options: Mapping[str, Any]) -> int:
    """load_timeout_s in nanoseconds."""
    value = options.get("load_timeout_s", 10)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 3600:
        raise ConfigurationError(f"load_timeout_s is {value!r}: seconds above 0, 3600 at most")
    return int(value * 1e9)
