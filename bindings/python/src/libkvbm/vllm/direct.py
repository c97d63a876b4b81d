"""Offloading without a pool of vLLM's in between: libkvbm copies between its host tier and the KV cache itself, in host
memory or on a CUDA device. For vLLM with one worker, in whose process the scheduler is, too.

A block is offered to the scheduler only when it is in host memory and held. It is verified as it is copied; one that
does not verify even so is reported to vLLM, which computes it.
"""
from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Collection, Iterable, Mapping, Optional

from . import compat

compat.check(compat.TIER, compat.DIRECT)

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector  # noqa: E402
from vllm.v1.kv_offload.base import (  # noqa: E402
    LoadStoreSpec, LookupResult, OffloadingManager, OffloadingSpec, OffloadingWorker, PrepareStoreOutput, ReqContext,
    RequestOffloadingContext, TransferResult, get_offload_group_idx,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # noqa: E402

from ..constants import Lookup, Status  # noqa: E402
from ..dispatch import Completion  # noqa: E402
from ..engine import ConfigurationError  # noqa: E402
from ..errors import KvbmError  # noqa: E402
from ..key import Keys  # noqa: E402
from ..match import Match  # noqa: E402
from .adapters import adapter_here, asking  # noqa: E402
from .metrics import definitions, observed  # noqa: E402
from .pace import REST_NS, Pace  # noqa: E402
from .pages import starting  # noqa: E402
from .tier import KvbmTier  # noqa: E402
from .vault import Vault  # noqa: E402

# Of the engines whose worker is in this process, by their ids.
_here: dict[str, Vault] = {}


class KvbmOffloadingSpec(OffloadingSpec):  # type: ignore[misc]
    """kv_connector_extra_config: {"spec_name": "KvbmOffloadingSpec", "spec_module_path": "libkvbm.vllm",
    "kvbm": {...}} of kv_connector KvbmOffloadingConnector, with kv_load_failure_policy recompute. "kvbm" has the
    options of libkvbm.engine.Configuration and load_timeout_s (10)."""

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
    """Where the blocks of a transfer are: their keys with the adapter of their request, and group after group of a load
    what holds them, of a store the block before the first one and the namespace as it was when they were computed."""

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
    fetched: set[bytes] = field(default_factory=set)  # asked for from below, once
    below: set[bytes] = field(default_factory=set)  # came from there
    loaded: set[bytes] = field(default_factory=set)  # or failed to
    last: dict[int, bytes] = field(default_factory=dict)  # the last block that is stored, by group


class KvbmManager(OffloadingManager):  # type: ignore[misc]
    """The scheduler's side. libkvbm itself knows what is stored; nothing is kept twice."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._looking: dict[str, _Request] = {}  # requests that hold what they have not loaded
        self._wanted: dict[tuple[int, bytes], list[bytes]] = {}  # to fetch from below at the end of the step
        self._fetching: dict[bytes, int] = {}
        self._pace = Pace()
        self._looked_at = 0.0

    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        vault, key = self._vault, bytes(key)
        if not vault.usable:
            return LookupResult.MISS
        self._poll()
        request = req_context.get_state(_Request)
        # It would be scheduled to load it for ever. Others may try: what is damaged they will not find.
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
            return LookupResult.RETRY
        if key in request.fetched:
            return LookupResult.MISS  # it did not come up whole
        found = vault.store.find(group.ns, bytes(name))
        if not found:
            return LookupResult.RETRY if found is None else LookupResult.MISS
        request.fetched.add(key)
        request.below.add(key)
        self._fetching[key] = 0
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
        # What was found and not loaded is looked up again in the next step. Holding it longer would keep the host tier
        # from taking new blocks.
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
        return observed(self._vault.store.stats, before, self._vault.store.aside)

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
                vault.store.manager.prefetch_submit(group.ns, vault.names(group, keys, adapter), vault.fetches,
                                                    user_data=keys)
            except KvbmError as error:
                vault.store.refused(error)
                self._fetched(keys)

        vault.store.soon(body)

    def _poll(self, wait_ns: int = 0) -> None:
        fetches = self._vault.fetches
        for completion in fetches.wait(wait_ns) if wait_ns else fetches.poll():
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
                # Somebody dropped blocks between; without all of them none is used.
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


class KvbmOffloadingConnector(OffloadingConnector):  # type: ignore[misc]
    """vLLM's OffloadingConnector, for all hooks of ours: it tells them of the engine and its requests what vLLM's own does
    not, and of KvbmOffloadingSpec has loads that failed computed."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        transfer = vllm_config.kv_transfer_config
        spec = (transfer.kv_connector_extra_config or {}).get("spec_name")
        if spec == KvbmOffloadingSpec.__name__ and transfer.kv_load_failure_policy != "recompute":
            raise ConfigurationError("KvbmOffloadingSpec needs kv_load_failure_policy recompute in "
                                     "kv_transfer_config: with fail a damaged block would end the request")
        with starting(vllm_config):
            super().__init__(vllm_config, role, kv_cache_config)
        self._groups = len(kv_cache_config.kv_cache_groups)
        self._loads: dict[int, str] = {}
        self._failed: set[int] = set()
        if self.connector_worker is not None:
            self.connector_worker.spec.failures_reported = True

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        with starting(self._vllm_config):
            super().register_kv_caches(kv_caches)

    def on_new_request(self, request: Any) -> None:
        with asking(request):
            super().on_new_request(request)

    def reset_cache(self) -> Optional[bool]:
        done: Optional[bool] = super().reset_cache()
        # vLLM leaves the tiers below its host pool as they are; after a change of weights they would be another's.
        for tier in getattr(self.connector_scheduler.manager, "secondary_tiers", ()):
            if isinstance(tier, KvbmTier):
                tier.invalidate()
        return done

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        worker = None if self.connector_worker is None else self.connector_worker.worker
        if isinstance(worker, KvbmWorker):
            worker.begin()

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        self._loads.update((job_id, job.req_id) for job_id, job in self._connector_metadata.load_jobs.items())
        super().start_load_kv(forward_context, **more)

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        results = super().get_transfer_results(finished_req_ids)
        worker = self.connector_worker.worker
        # Of KvbmTieringSpec vLLM hears of failed blocks before it schedules them.
        blocks, jobs = worker.take_failed() if isinstance(worker, KvbmWorker) else (set(), set())
        if self._groups == 1:
            self._failed |= blocks
        else:  # block ids are those of a group: the whole request is computed
            results.failed_recving.update(self._loads[job_id] for job_id in jobs if job_id in self._loads)
        for job_id, req_id in list(self._loads.items()):
            if req_id in results.finished_recving:
                del self._loads[job_id]
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed
