"""Offloading without a vLLM pool in between: libkvbm copies directly between its host tier and the KV cache, in host
memory or on a CUDA device. For vLLM with one worker in the scheduler's process.

A block is offered to the scheduler only when it is in host memory and held. It is verified while it is copied. A block
that fails verification is reported to vLLM, which computes it.
"""
from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Collection, Iterable, Mapping, Optional

from . import compat

compat.check(compat.TIER, compat.DIRECT)

from vllm.v1.kv_offload.base import (  # noqa: E402
    LoadStoreSpec, LookupResult, OffloadingManager, OffloadingSpec, OffloadingWorker, PrepareStoreOutput, ReqContext,
    RequestOffloadingContext, TransferResult, get_offload_group_idx,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # noqa: E402

from ..constants import Lookup, Status  # noqa: E402
from ..dispatch import Completion  # noqa: E402
from ..engine import ConfigurationError, PrefillSpeed, Speed  # noqa: E402
from ..errors import KvbmError  # noqa: E402
from ..key import Keys  # noqa: E402
from ..match import Match  # noqa: E402
from .adapters import adapter_here  # noqa: E402
from .metrics import Weighed, definitions, observed  # noqa: E402
from .pace import REST_NS, Pace  # noqa: E402
from .vault import Vault  # noqa: E402

# As the library's own slack and probes of loads that are weighed (docs/cost.md).
_SLACK_NS, _PROBE_NS = 1_000_000, 1_000_000_000
# Engines with a worker in this process, by their ids.
_here: dict[str, Vault] = {}


class KvbmOffloadingSpec(OffloadingSpec):  # type: ignore[misc]
    """kv_connector_extra_config: {"spec_name": "KvbmOffloadingSpec", "spec_module_path": "libkvbm.vllm",
    "kvbm": {...}} of kv_connector KvbmOffloadingConnector, with kv_load_failure_policy recompute. "kvbm" has the
    options of libkvbm.engine.Configuration, load_timeout_s (10) and weigh (true): what would take longer to fetch into
    host memory than to compute is computed."""

    @classmethod
    def build_metric_definitions(cls, extra_config: Mapping[str, Any]) -> dict[str, Any]:
        return dict(definitions())

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.failures_reported = False  # KvbmOffloadingConnector says so
        other = "KvbmTieringSpec does it"
        if config.parallel.world_size != 1:
            raise ConfigurationError(f"KvbmOffloadingSpec is for one worker, not {config.parallel.world_size}: {other}")
        if config.cache.blocks_per_chunk != 1:
            raise ConfigurationError(f"KvbmOffloadingSpec stores blocks as vLLM has them; take block_size and "
                                     f"blocks_per_chunk out of kv_connector_extra_config: {other}")

    def get_manager(self) -> Any:
        vault = _here.pop(self.config.engine_id, None)
        if vault is None:
            raise ConfigurationError("KvbmOffloadingSpec needs vLLM's scheduler and worker in one process "
                                     "(distributed_executor_backend uni): KvbmTieringSpec does not")
        return KvbmManager(vault)

    def get_worker(self, kv_caches: Any) -> Any:
        if not self.failures_reported:
            raise ConfigurationError("KvbmOffloadingSpec needs kv_connector KvbmOffloadingConnector with "
                                     "kv_connector_module_path libkvbm.vllm: OffloadingConnector cannot report a block "
                                     "that failed to load")
        options = self.extra_config.get("kvbm", {})
        if not isinstance(options, Mapping):
            raise ConfigurationError(f"kvbm is {options!r}: a table of libkvbm's options is expected")
        vault = Vault(self.config, options, kv_caches)
        _here[self.config.engine_id] = vault
        return KvbmWorker(vault)


class Blocks(LoadStoreSpec):  # type: ignore[misc]
    """Places of the blocks of a transfer: their keys with the adapter of their request. Then for each group, of a load
    the match that holds them; of a store the block before the first one, and the namespace at the time of computing."""

    def __init__(self, keys: list[bytes], adapter: bytes, matches: Optional[dict[int, Match]] = None,
                 parents: Optional[dict[int, bytes]] = None, spaces: Optional[dict[int, bytes]] = None) -> None:
        self.keys = keys
        self.adapter = adapter
        self.matches = matches or {}
        self.parents = parents or {}
        self.spaces = spaces or {}


@dataclass
class _Request:
    adapter: bytes = b""
    held: dict[bytes, Match] = field(default_factory=dict)
    fetched: set[bytes] = field(default_factory=set)  # requested from lower tiers, once
    below: set[bytes] = field(default_factory=set)  # came from there
    loaded: set[bytes] = field(default_factory=set)  # or failed to
    last: dict[int, bytes] = field(default_factory=dict)  # the last block that is stored, by group


class KvbmManager(OffloadingManager):  # type: ignore[misc]
    """The scheduler's side. libkvbm itself knows what is stored; nothing is kept twice."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self.speed: Speed = PrefillSpeed()  # KvbmOffloadingConnector gives it that of its engine
        self.weighed = Weighed()
        self._probed = 0
        self._looking: dict[str, _Request] = {}  # requests that hold what they have not loaded
        self._wanted: dict[tuple[int, bytes], list[bytes]] = {}  # to fetch from below at the end of the step
        self._fetching: dict[bytes, float] = {}  # until when, in nanoseconds, it is waited for
        self._pace = Pace()
        self._looked_at = 0.0

    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        vault, key = self._vault, bytes(key)
        if not vault.usable:
            return LookupResult.MISS
        self._poll()
        request = req_context.get_state(_Request)
        # The request would be scheduled to load it for ever. Other requests may try: they do not find damaged blocks.
        if key in request.loaded and vault.has_failed(key):
            return LookupResult.MISS
        group = vault.group(get_offload_group_idx(key))
        name = vault.names(group, [key], request.adapter)
        match = vault.store.aside.call(lambda: group.cache.lookup(name, host_only=True), None)
        if match:
            request.held[key] = match
            request.last[group.number] = key
            self._looking[req_context.req_id] = request
            return LookupResult.HIT
        if vault.being_stored(key):
            return LookupResult.HIT_PENDING
        if key in self._fetching:
            return LookupResult.RETRY if time.monotonic_ns() < self._fetching[key] else LookupResult.MISS
        if key in request.fetched:
            return LookupResult.MISS  # not all of its blocks came up
        found = vault.store.find(group.ns, bytes(name))
        if not found:
            return LookupResult.RETRY if found is None else LookupResult.MISS
        request.fetched.add(key)
        request.below.add(key)
        self._fetching[key] = math.inf
        self._wanted.setdefault((group.number, request.adapter), []).append(key)
        return LookupResult.RETRY

    def get_load_source(self, key: bytes, req_context: ReqContext) -> CacheHitSource:
        request = req_context.get_state(_Request)
        return CacheHitSource.DISK if request is not None and bytes(key) in request.below else CacheHitSource.HOST

    def prepare_load(self, keys: Collection[bytes], req_context: ReqContext) -> Blocks:
        vault = self._vault
        request = req_context.get_state(_Request)
        matches: dict[int, Match] = {}
        for number, mine in vault.by_group(keys).items():
            group = vault.group(number)
            # One match for all of them; each is held by its own until this one does.
            match = vault.store.aside.call(
                lambda: group.cache.lookup(vault.names(group, mine, request.adapter), mode=Lookup.EACH, host_only=True), None)
            if match is not None:
                matches[number] = match
        request.held.clear()
        request.loaded.update(bytes(key) for key in keys)
        return Blocks([bytes(key) for key in keys], request.adapter, matches)

    def prepare_store(self, keys: Collection[bytes], req_context: ReqContext) -> Optional[PrepareStoreOutput]:
        vault = self._vault
        request = req_context.get_state(_Request)
        missing = [bytes(key) for key in keys if vault.usable and not vault.being_stored(bytes(key))
                   and not vault.there(bytes(key), request.adapter)]
        vault.storing(missing)
        parents = dict(request.last)
        request.last.update((number, mine[-1]) for number, mine in vault.by_group(keys).items())
        return PrepareStoreOutput(keys_to_store=missing, evicted_keys=[], store_spec=Blocks(
            missing, request.adapter, parents=parents, spaces=vault.spaces()))

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        self._vault.open()
        req_context.set_state(_Request(adapter_here()))
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        request = req_context.get_state(_Request)
        if request is not None:
            request.held.clear()

    def on_schedule_end(self, context: Any) -> None:
        rest = self._pace.idle() and bool(self._fetching)
        self._poll(REST_NS if rest else 0)
        self._pace.rested()
        self._vault.step()
        # Blocks found and not loaded are looked up again in the next step. Holding them longer would keep the host tier
        # from accepting new blocks.
        self._let_go()
        for (number, adapter), keys in self._wanted.items():
            self._fetch(number, adapter, keys)
        self._wanted = {}

    def has_pending_work(self) -> bool:
        return bool(self._fetching)

    def reset_cache(self) -> None:
        """Nothing that was stored is found any more: vLLM asks for it when weights have changed in place."""
        self._let_go()
        self._vault.invalidate()

    def get_stats(self) -> Any:
        now = time.monotonic()
        if now - self._looked_at < 1:
            return None
        self._looked_at = now
        before = self._vault.store.stats
        self._vault.store.look_after()
        return observed(self._vault.store.stats, before, self._vault.store.aside, self.weighed)

    def shutdown(self) -> None:
        self._let_go()
        self._vault.release()

    def _let_go(self) -> None:
        for request in self._looking.values():
            request.held.clear()
        self._looking.clear()

    def _fetch(self, number: int, adapter: bytes, keys: list[bytes]) -> None:
        vault = self._vault
        group = vault.group(number)

        def body() -> None:
            try:
                names = vault.names(group, keys, adapter)
                worth = self._worth(group, names, keys)
                if worth:
                    vault.store.manager.prefetch_submit(group.ns, names[:worth], vault.fetches, user_data=keys[:worth])
                elif time.monotonic_ns() > self._probed + _PROBE_NS:  # no request waits for it
                    self._probed = time.monotonic_ns()
                    vault.store.manager.prefetch_submit(group.ns, names[:1], vault.fetches, user_data=[])
                self._fetched(keys[worth:])
            except Exception as error:  # an exception would be lost, and requests would wait for ever
                vault.store.failed(error)
                self._fetched(keys)

        vault.store.soon(body)

    def _worth(self, group: Any, names: Keys, keys: list[bytes]) -> int:
        """How many of these blocks, in the order of the prompt, to fetch: with them, and the others computed, it is there
        soonest. They are waited for no longer than computing or fetching all would take, and an eighth."""
        vault, n = self._vault, len(keys)
        compute = self.speed.block_ns(vault.block_tokens) if vault.weigh else 0
        if compute == 0:
            return n
        with vault.store.manager.lookup(group.ns, names, mode=Lookup.EACH, no_use=True) as match:
            cost = [0, *match.cost(0, n)] if match else []
        if len(cost) != n + 1:
            return n
        worth = min(range(n + 1), key=lambda i: cost[i] + (n - i) * compute)
        self.weighed.left += n - worth
        self.weighed.not_started += worth == 0
        self.weighed.predicted_ns += cost[worth]
        due = time.monotonic_ns() + max(n * compute, cost[worth]) + n * compute // 8 + _SLACK_NS
        self._fetching.update((key, due) for key in keys[:worth])
        return worth

    def _poll(self, wait_ns: int = 0) -> None:
        fetches = self._vault.fetches
        for completion in fetches.wait(wait_ns) if wait_ns else fetches.poll():
            if self._vault.weigh and completion.user_data:
                self.weighed.actual_ns += completion.service_ns
            self._fetched(completion.user_data)

    def _fetched(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._fetching.pop(key, None)


class KvbmWorker(OffloadingWorker):  # type: ignore[misc]
    """The worker's side. vLLM knows no transfer that failed: a store that did is a miss later, and blocks of a load
    that did are reported by the connector."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._left: dict[int, int] = {}  # operations of a job that have not ended
        self._loads: set[int] = set()
        self._pace = Pace()
        self._moved: dict[int, tuple[int, float]] = {}
        self._done: deque[TransferResult] = deque()
        self.failed_blocks: set[int] = set()
        self.failed_jobs: set[int] = set()

    def begin(self) -> None:
        """A step begins, of which vLLM has launched nothing yet."""
        self._vault.between.begin()

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Blocks) -> bool:
        vault = self._vault
        self._begin(job_id)
        vault.submitted(dst_spec.keys)
        for number, keys, blocks in vault.paired(dst_spec.keys, src_spec):
            group = vault.group(number)
            before = dst_spec.parents.get(number)
            if group.ns is None or group.ns.id != dst_spec.spaces.get(number):
                vault.stored(keys)  # computed before a reset, perhaps with other weights: not kept
                continue
            names = vault.names(group, keys, dst_spec.adapter)
            # The host tier evicts the ends of prompts before their beginnings.
            parent = None if before is None else bytes(vault.names(group, [before], dst_spec.adapter))
            vault.store.describe(group.ns, names, keys, before)
            self._operation(job_id, keys, blocks, True, lambda user: group.cache.store_submit(
                names, blocks, vault.copies, user_data=user, parent=parent, stream=vault.place.stream()))
        self._end(job_id)
        return True

    def submit_load(self, job_id: int, src_spec: Blocks, dst_spec: Any, **later: Any) -> bool:
        vault = self._vault
        self._begin(job_id)
        self._loads.add(job_id)
        for number, keys, blocks in vault.paired(src_spec.keys, dst_spec):
            group, match = vault.group(number), src_spec.matches.pop(number, None)
            if not match or match.hits != len(keys):
                # Blocks in between were dropped; without all of them none is used.
                self._fail(job_id, keys, blocks)
                continue
            self._operation(job_id, keys, blocks, False, lambda user: group.cache.load_submit(
                match, blocks, vault.copies, user_data=user, timeout_ns=vault.timeout_ns,
                stream=vault.between.stream()))
            match.release()
        self._end(job_id)
        return True

    def get_finished(self) -> list[TransferResult]:
        rest = self._pace.idle() and bool(self._loads)
        for completion in self._vault.copies.wait(REST_NS, 1024) if rest else self._vault.copies.poll(1024):
            self._completed(completion)
        self._pace.rested()
        finished = list(self._done)
        self._done.clear()
        return finished

    def wait(self, job_ids: set[int]) -> None:
        while any(job_id in self._left for job_id in job_ids):
            for completion in self._vault.copies.wait(100_000_000):
                self._completed(completion)

    def take_failed(self) -> tuple[set[int], set[int]]:
        """Blocks that were not loaded, and the jobs that they are of, since the last call."""
        taken = self.failed_blocks, self.failed_jobs
        self.failed_blocks, self.failed_jobs = set(), set()
        return taken

    def shutdown(self) -> None:
        self.wait(set(self._left))
        self._vault.release()

    def _begin(self, job_id: int) -> None:
        self._left[job_id] = 1
        self._moved[job_id] = (0, 0.0)

    def _operation(self, job_id: int, keys: list[bytes], blocks: list[int], store: bool, submit: Any) -> None:
        self._left[job_id] += 1
        try:
            if self._vault.store.aside.stepped:
                raise ConfigurationError("stepped aside")
            submit((job_id, keys, blocks, store))
        except (KvbmError, ConfigurationError) as error:
            if isinstance(error, KvbmError):
                self._vault.store.refused(error)
            self._ended(job_id, keys, blocks, store, ())

    def _completed(self, completion: Completion) -> None:
        job_id, keys, blocks, store = completion.user_data
        moved, seconds = self._moved[job_id]
        self._moved[job_id] = moved + completion.bytes, max(seconds, completion.service_ns / 1e9)
        status = completion.item_status if completion.status >= 0 and completion.item_status is not None else ()
        self._ended(job_id, keys, blocks, store, status)

    def _ended(self, job_id: int, keys: list[bytes], blocks: list[int], store: bool, statuses: Any) -> None:
        good = list(statuses)
        if store:
            self._vault.stored(keys)
        elif len(good) != len(blocks) or any(status != Status.OK for status in good):
            good += [Status.OK - 1] * (len(blocks) - len(good))
            bad = [i for i, status in enumerate(good[:len(blocks)]) if status != Status.OK]
            self._fail(job_id, [keys[i] for i in bad], [blocks[i] for i in bad])
        self._end(job_id)

    def _fail(self, job_id: int, keys: list[bytes], blocks: list[int]) -> None:
        self._vault.failed(keys)
        if keys:
            self._vault.clear(self._vault.group(get_offload_group_idx(keys[0])), blocks)
        self.failed_blocks.update(blocks)
        self.failed_jobs.add(job_id)

    def _end(self, job_id: int) -> None:
        self._left[job_id] -= 1
        if self._left[job_id] == 0:
            del self._left[job_id]
            self._loads.discard(job_id)
            moved, seconds = self._moved.pop(job_id)
            self._done.append(TransferResult(job_id=job_id, success=True, transfer_size=moved, transfer_time=seconds))
