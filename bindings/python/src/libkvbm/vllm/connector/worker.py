"""The worker's half of the connector: it stores blocks when they are filled and loads those that were found."""
from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Sequence, Union

from ... import (
    NO_BLOCK, Cache, Completion, Keys, KvbmError, Manager, Namespace, NoRoomError, PeerError, Queue, Status, WaitLayers,
)
from ...engine import ConfigurationError, PrefillSpeed
from ...engine.facts.vllm import check_awake, model_name, run_time_scales
from . import engines
from .canonical import Canonical, Staged
from .counts import KvbmStats
from .handoff import Handoff
from .layered import Awaited, Layered, check_layers
from .layout import Group, Unsupported, block_tokens, check_identity, check_parallel, groups_of, identity, rank_of, whole
from .metadata import LoadJob, RankFacts, Span, StepMetadata, StoreJob
from ..place import Place, StepClock, StepStream
from ..tiles import ask_for_tiles
from .options import Options

log = logging.getLogger("vllm.libkvbm")
# A step in which nothing is computed waits so long for loads: the engine would ask again at once, and take the
# processor from them.
_IDLE_NS = 500_000
_SLICE_NS = 50_000_000
# A step that is about to write a block waits no longer than this for a store of it.
_STORE_NS = 5_000_000_000


@dataclass
class _Store:
    blocks: list[int]
    span: Span
    staged: Optional[Staged] = None


@dataclass
class _Load:
    """A request's load: `left` spans are under way. `slow` blocks are computed because that is quicker."""

    job: LoadJob
    left: int
    failed: set[int] = field(default_factory=set)
    slow: set[int] = field(default_factory=set)


@dataclass
class _Part:
    """One span of a load, of which `asked` blocks were found; those behind were not."""

    load: _Load
    group: int
    asked: list[int]
    weighed: bool = False
    staged: Optional[Staged] = None
    awaited: Optional[Awaited] = None  # by the forward pass of its step


@dataclass
class Results:
    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


class WorkerSide:
    """Thread: the worker's, but for what _load runs on threads of its own where other processes are asked."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, options: Options) -> None:
        check_parallel(vllm_config)
        check_awake(vllm_config)
        check_identity(options, kv_cache_config)
        check_layers(options, vllm_config, kv_cache_config)
        self._config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._options = options
        self._engine = str(vllm_config.kv_transfer_config.engine_id)
        self.aside = engines.aside()
        self.stats = KvbmStats()
        self.tiers: Optional[engines.Tiers] = None
        self.handoff: Optional[Handoff] = None
        self._model = ""
        self._groups: list[Group] = []
        self._queue: Optional[Queue] = None
        self._canonical: Optional[Canonical] = None
        self._pool: Optional[ThreadPoolExecutor] = None
        self._reading: dict[int, int] = {}  # block -> stores that read it
        self._ended: deque[tuple[_Part, Optional[Completion]]] = deque()  # by threads of _pool
        self._results = Results()
        self._bad_blocks: set[int] = set()
        self._left: set[str] = set()
        self.store_over: Callable[[Span], None] = lambda span: None  # a scheduler in this process wants to know
        self._loading = 0
        self._tokens = block_tokens(kv_cache_config)[1]
        self._speed = PrefillSpeed()
        self._weighed = (0, 0, 0)
        self._at(Place.of(()))
        self._layered: Optional[Layered] = None

    def _at(self, place: Place) -> None:
        self._place = place
        self._clock = StepClock(place)
        self._between = StepStream(place)

    # ---- start and end

    def register(self, kv_caches: dict[str, Any]) -> None:
        """Describes the engine's cache, and opens the tiers. Raises ConfigurationError for what cannot be meant."""
        rank, ranks = rank_of(self._config)
        unfit = run_time_scales(self._config)
        if unfit is not None:
            self.aside.step(unfit)
        else:
            self._model = model_name(self._config, self._options.library.revision, log=log)
            self._describe(kv_caches, rank, ranks)
        if self._options.cache and not self.aside.stepped:
            self._open(rank, ranks)
        engines.add(self._engine, self)

    def _describe(self, kv_caches: dict[str, Any], rank: int, ranks: int) -> None:
        try:
            self._groups = groups_of(self._config, self._kv_cache_config, kv_caches)
            self._at(self._groups[0].place)
            if not self._place.on_device:
                ask_for_tiles()
            if self._options.layers:
                self._layered = Layered(self._place, self._groups[0].layers)
            if self._options.handoff:
                described = whole(self._config, self._model, self._groups, rank, ranks)
                self.handoff = Handoff(self._options, described, self._kv_cache_config.num_blocks, self._engine, rank,
                                       ranks, self.stats)
        except Unsupported as error:
            self.aside.step(f"the cache of this model is held in a way it does not know: {error}")

    def _open(self, rank: int, ranks: int) -> None:
        library = engines.among_processes(self._config, self._options.library)
        manager = library.open(max(group.block_bytes for group in self._groups))
        self.tiers = engines.Tiers(manager)
        for group in self._groups:
            ns = identity(self._config, self._options, self._model, group, rank, ranks).namespace(
                manager, tenant=library.tenant, secret=library.secret)
            self.tiers.spaces.append(ns)
            if self._options.identity == "tokens":
                self._canonical = Canonical(self._config, group.layers, group.views, manager, ns)
                self.tiers.caches.append(self._canonical.empty(1).cache)  # to look things up with
            else:
                self.tiers.caches.append(self._attach(manager, ns, group))
        self._queue = manager.queue()
        if not self.tiers.quick:
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="libkvbm-load")
        log.info("KvbmConnector: rank %d of %d keeps blocks of %s bytes of %s", rank, ranks,
                 " and ".join(str(group.block_bytes) for group in self._groups), self._place.name)

    def _attach(self, manager: Manager, ns: Namespace, group: Group) -> Cache:
        try:
            return Cache(manager, ns, self._kv_cache_config.num_blocks, tensors=group.tensors,
                         memory=self._place.memory, device=self._place.device)
        except KvbmError as error:
            raise ConfigurationError(f"the KV cache in {self._place.name} cannot be attached: {error}") from error

    def facts(self) -> RankFacts:
        rank, ranks = rank_of(self._config)
        spaces = None
        if self.tiers is not None:
            spaces = [identity(self._config, self._options, self._model, group, rank, ranks).text() for group in self._groups]
        return RankFacts(rank, spaces, max((group.block_bytes for group in self._groups), default=0),
                         "" if self.handoff is None else self.handoff.address,
                         "" if self.handoff is None else self.handoff.name)

    def close(self) -> None:
        engines.remove(self._engine, self)
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self.handoff is not None:
            self.handoff.close()
        if self.tiers is not None:
            self.tiers.close()
            self.tiers = None
        self._queue = None

    # ---- steps

    def began(self, step: StepMetadata) -> None:
        if step.loads or step.receives:
            self._between.begin()
        if self._layered is not None:
            self._layered.begin()
        if step.prompt_tokens:
            self._clock.begin()
        else:
            self._clock.skip()

    def before_writes(self, step: StepMetadata) -> None:
        """Waits for stores that read blocks which this step is going to write: a request that had them has ended, was
        preempted, or its window has gone on."""
        self._wait_for_stores(step.written)

    def load(self, step: StepMetadata) -> None:
        # Of this thread: those that ask elsewhere have another current stream.
        stream = self._between.stream() if self._layered is None else self._place.stream()
        for job in step.loads:
            self._wait_for_stores([block for span in job.spans for block in span.block_ids])
            load = _Load(job, len(job.spans))
            self._loading += 1
            for span in job.spans:
                # The forward pass comes next where it waits for layers, and must know for what.
                if self._pool is None or self._layered is not None:
                    self._load(load, span, stream)
                else:
                    self._pool.submit(self._load, load, span, stream)
        if self.handoff is not None:
            for offer in step.offers:
                self.handoff.offer(offer)
            for receive in step.receives:
                self._wait_for_stores(receive.block_ids)
                self.handoff.receive(receive, stream)

    def wait_for_layer(self, layer: str) -> None:
        """Called within the forward pass, before each layer."""
        if self._layered is not None:
            self._layered.wait(layer)

    def store(self, step: StepMetadata) -> None:
        """After a step: stores what it filled. On a device it may still be computing that."""
        for tokens, ns in self._clock.end(step.prompt_tokens):
            self._speed.measured(tokens, ns)
        self._end_layered()
        if self._layered is not None and self._layered.failed:
            # This step may have read blocks that were not loaded.
            for span in (span for job in step.stores for span in job.spans):
                self.stats.add("store_failures", len([block for block in span.block_ids if block]))
                self.store_over(span)
            return
        for job in step.stores:
            self.aside.call(lambda job=job: self._store(job, step.spaces), None)  # type: ignore[misc]

    def results(self, idle: bool) -> Results:
        """Takes the transfers that have ended since the last call."""
        self._end_layered()
        if self._queue is not None:
            # The scheduler waits for loads to end, and a repeated prompt for stores.
            wait = idle and (self._loading > 0 or bool(self._reading)) and not self._ended
            self._take(self._queue.wait(_IDLE_NS) if wait else self._queue.poll())
        while self._ended:
            self._part_ended(*self._ended.popleft())
        if self.handoff is not None:
            ended = self.handoff.poll(_IDLE_NS if idle and self._loading == 0 else 0)
            self._results.sent |= ended.sent
            self._results.received |= ended.received
            for request, blocks in ended.failed.items():
                self._results.received.add(request)
                self._place.clear(self._groups[0].views, blocks)
                self._fail(request, blocks)
        taken, self._results = self._results, Results()
        return taken

    def bad_blocks(self) -> set[int]:
        taken, self._bad_blocks = self._bad_blocks, set()
        return taken

    def left(self) -> set[str]:
        """Requests since the last call of which blocks were left to compute, and none was lost."""
        taken, self._left = self._left, set()
        return taken

    # ---- stores

    def _store(self, job: StoreJob, spaces: list[bytes]) -> None:
        if self.tiers is None or self._queue is None:
            return
        first = rank_of(self._config)[0] * len(self._groups)
        for span in job.spans:
            cache = self.tiers.caches[span.group]
            if cache.ns.id != spaces[first + span.group]:
                self.store_over(span)  # computed before a reset, perhaps with other weights
                continue
            keys = _keys(cache, span)
            parent = None if span.parent is None else bytes(Keys.from_hashes(cache.ns, [span.parent]))
            blocks = [block for block in span.block_ids if block]
            staged = None if self._canonical is None else self._canonical.read(span.block_ids)
            source, ids = (cache, _ids(span.block_ids)) if staged is None else (staged.cache, _rows(span.block_ids))
            try:
                source.store_submit(keys, ids, self._queue, user_data=_Store(blocks, span, staged),
                                    parent=parent, timeout_ns=_STORE_NS, stream=self._place.stream())
            except (NoRoomError, PeerError):  # too much is under way, or the owner has gone: these blocks are not kept
                self.stats.add("store_failures", len(blocks))
                self.store_over(span)
                continue
            for block in blocks:
                self._reading[block] = self._reading.get(block, 0) + 1

    def _wait_for_stores(self, blocks: list[int]) -> None:
        if not self._reading or self._queue is None:
            return
        wanted = [block for block in blocks if block in self._reading]
        if wanted:
            self.stats.add("store_waits")
        while any(block in self._reading for block in wanted):
            self._take(self._queue.wait(_SLICE_NS))

    def _store_ended(self, store: _Store, completion: Completion) -> None:
        if store.staged is not None:
            store.staged.close()
        for block in store.blocks:
            left = self._reading[block] - 1
            if left:
                self._reading[block] = left
            else:
                del self._reading[block]
        self.store_over(store.span)
        self.stats.add("stored_blocks", completion.items_done)
        self.stats.add("stored_bytes", completion.bytes)
        self.stats.add("store_failures", completion.items - completion.items_done)

    # ---- loads

    def _load(self, load: _Load, span: Span, stream: Optional[int]) -> None:
        """Starts the load of a span; what was not found has failed. Thread: any."""
        part = _Part(load, span.group, [])
        submitted: Optional[bool] = None
        try:
            submitted = self.aside.call(lambda: self._submit(part, span, stream), submitted)
        except Exception as error:  # an exception of a thread would be lost, and the request would wait for ever
            self.aside.step(f"{type(error).__name__}: {error}")
        if submitted is None:
            load.failed.update(block for block in span.block_ids if block)
        if not submitted:
            self._ended.append((part, None))

    def _submit(self, part: _Part, span: Span, stream: Optional[int]) -> bool:
        """False where nothing was found."""
        if self.tiers is None or self._queue is None:
            raise ConfigurationError("a load, and there are no tiers")
        cache = self.tiers.caches[span.group]
        ask = self._options.ask_nodes_ns if self._pool is not None and self.tiers.is_node else 0
        with cache.lookup(_keys(cache, span), ask_nodes_ns=ask) as match:
            part.load.failed.update(block for block in span.block_ids[match.hits:] if block)
            found = span.block_ids[:match.hits]
            if not found:
                return False
            compute_ns = self._compute_ns()
            staged = None if self._canonical is None else self._canonical.empty(len(found))
            target, ids = (cache, _ids(found)) if staged is None else (staged.cache, _rows(found))
            what = _Part(part.load, span.group, found, compute_ns > 0, staged)
            # Not ON_DEVICE: vLLM copies sampled tokens to pageable memory behind the waits. That may hold the lock of
            # the driver, and what is still to be given to the driver needs it.
            waits = WaitLayers.OFF if self._layered is None else WaitLayers.ISSUED
            operation = target.load_submit(
                match, ids, self._queue, user_data=what, timeout_ns=self._options.load_timeout_ns,
                compute_block_ns=compute_ns, stream=stream, wait_layers=waits)
            if self._layered is not None:
                what.awaited = self._layered.add(target, operation)
        return True

    def _compute_ns(self) -> int:
        """Computing time of a block; 0: it is loaded in any case. With several groups of layers a part of a load would
        be useless, and blocks of a window cost more to compute than their length suggests. Stopping a load that a step
        waits for costs that step."""
        if not self._options.weigh or len(self._tokens) != 1 or self._layered is not None:
            return 0
        return self._speed.block_ns(self._tokens[0])

    def _end_layered(self) -> None:
        """Waits for loads that the step's forward pass waits for, too: what failed is said with its answer."""
        while self._layered is not None and self._loading > 0 and self._queue is not None:
            if not self._ended:
                self._take(self._queue.wait(_SLICE_NS))
            while self._ended:
                self._part_ended(*self._ended.popleft())

    def _take(self, completions: list[Completion]) -> None:
        for completion in completions:
            what: Union[_Store, _Part] = completion.user_data
            if isinstance(what, _Store):
                self._store_ended(what, completion)
            else:
                self._part_ended(what, completion)

    def _part_ended(self, part: _Part, completion: Optional[Completion]) -> None:
        load = part.load
        if completion is not None:
            statuses = completion.item_status
            self._unstage(part, statuses)
            late = part.weighed and completion.status == Status.PARTIAL
            bad = [i for i, block in enumerate(part.asked) if block and (statuses is None or statuses[i] != Status.OK)]
            for i in bad:
                slow = late and statuses is not None and statuses[i] == Status.DEADLINE
                (load.slow if slow else load.failed).add(part.asked[i])
            self._place.clear(self._groups[part.group].views, [part.asked[i] for i in bad])
            if part.awaited is not None and self._layered is not None and not self._layered.waited(part.awaited):
                log.warning("KvbmConnector: the step of request %s did not wait for what is loaded of it", load.job.request)
                load.failed.update(block for block in part.asked if block)
            self.stats.add("loaded_blocks", completion.items_done)
            self.stats.add("loaded_bytes", completion.bytes)
        elif self.aside.stepped:
            load.failed.update(block for span in load.job.spans for block in span.block_ids if block)
        load.left -= 1
        if load.left == 0:
            self._load_ended(load)

    def _unstage(self, part: _Part, statuses: Optional[Sequence[int]]) -> None:
        """Takes what was loaded in the common order into the engine's cache."""
        if part.staged is None or self._canonical is None:
            return
        good = [i for i, block in enumerate(part.asked) if block and statuses is not None and statuses[i] == Status.OK]
        self._canonical.write(part.staged, good, [part.asked[i] for i in good])
        part.staged.close()

    def _load_ended(self, load: _Load) -> None:
        request = load.job.request
        self._loading -= 1
        if self._layered is None:
            self._results.received.add(request)
        else:
            self._layered.failed |= bool(load.failed)
        self.stats.add("left_blocks", len(load.slow))
        self._count_weighed()
        if load.failed:
            self.stats.add("load_failures", len(load.failed))
            log.warning("KvbmConnector: %d of the blocks of request %s could not be loaded and are computed",
                        len(load.failed), request)
        elif load.slow:
            self._left.add(request)
        if load.failed or load.slow:
            self._fail(request, load.failed | load.slow)

    def _count_weighed(self) -> None:
        """Changes of the library's predicted and measured load times."""
        if self.tiers is None or not self._options.weigh:
            return
        now = self.aside.call(self.tiers.manager.stats, None)
        if now is None:
            return
        weighed = (now.loads_not_started, now.load_predicted_ns, now.load_actual_ns)
        not_started, predicted, actual = (new - old for new, old in zip(weighed, self._weighed))
        self._weighed = weighed
        self.stats.add("loads_not_started", not_started)
        self.stats.add("load_predicted_seconds", predicted / 1e9)
        self.stats.add("load_actual_seconds", actual / 1e9)

    def _fail(self, request: str, blocks: set[int]) -> None:
        """vLLM knows failed blocks of models with one group of layers, and failed requests of others."""
        if len(self._kv_cache_config.kv_cache_groups) == 1:
            self._bad_blocks |= blocks
        else:
            self._results.failed.add(request)


def _keys(cache: Cache, span: Span) -> Keys:
    return Keys.from_hashes(cache.ns, span.hashes, span.hash_bytes)


def _rows(block_ids: list[int]) -> list[int]:
    """Where blocks stand that were brought together; NO_BLOCK for those that are none."""
    return [row if block else NO_BLOCK for row, block in enumerate(block_ids)]


def _ids(block_ids: list[int]) -> list[int]:
    return [block or NO_BLOCK for block in block_ids]
