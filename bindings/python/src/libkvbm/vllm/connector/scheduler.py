"""The scheduler's half of the connector: lookups, planning of loads, stores and hand-off."""
from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Iterator, Optional

from ... import KvbmError, Manager, Namespace, ShareRole
from ...engine import Aside, ConfigurationError
from ...engine.facts.vllm import check_awake
from ..pace import prompt_tokens
from . import decode, engines
from .at_once import AtOnce
from .layered import check_layers
from .layout import block_tokens, check_parallel
from .lookup import Finder, Space
from .metadata import Heard, LoadJob, OfferJob, RankFacts, ReceiveJob, Remote, Span, StepMetadata, StoreJob
from .names import Names
from .options import Options
from .pending import Pending

if TYPE_CHECKING:
    from .told import Told

log = logging.getLogger("vllm.libkvbm")
_ENDED_WELL = ("FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED")


class SchedulerSide:
    """Thread: the scheduler's."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, options: Options) -> None:
        check_parallel(vllm_config)
        check_awake(vllm_config)
        check_layers(options, vllm_config, kv_cache_config)
        self._config = vllm_config
        self._options = options
        self._engine = str(vllm_config.kv_transfer_config.engine_id)
        self._ranks = int(vllm_config.parallel_config.tensor_parallel_size)
        self._hashed, self._tokens = block_tokens(kv_cache_config)
        self._least = min(self._tokens)
        self._aside: Aside = engines.aside()
        self._tiers: Optional[engines.Tiers] = None  # of its own; a worker in this process has others
        self._spaces: list[Namespace] = []
        self._finder: Optional[Finder] = None
        self._nodes: tuple[tuple[str, str], ...] = ()
        self._manager: Any = None  # vLLM's KVCacheManager
        self._requests: dict[str, Any] = {}
        self._stored: dict[str, int] = {}  # tokens that are stored, or being stored
        self._local: dict[str, int] = {}  # tokens that the engine had when it asked
        self._remote: dict[str, Optional[Remote]] = {}
        self._loading: dict[str, set[int]] = {}
        self._failed: set[str] = set()
        self._left: set[str] = set()  # left to compute: not offered again before they are
        self._at_once = AtOnce()
        self._step = StepMetadata()
        self._pending = Pending()
        self._names = Names(options.identity, self._hashed)
        self._told: Optional[Told] = None

    # ---- start and end

    def meet(self, workers: dict[int, RankFacts]) -> None:
        """Hears what the workers are; they have been started before."""
        facts = [workers[rank] for rank in sorted(workers)]
        self._nodes = tuple((fact.address, fact.node) for fact in facts if fact.address)
        worker = engines.worker_of(self._engine)
        if worker is not None:
            self._aside = worker.aside
        if not self._options.cache or any(fact.spaces is None for fact in facts):
            return
        if worker is not None and worker.tiers is not None and self._ranks == 1:
            tiers = worker.tiers
            worker.store_over = lambda span: self._pending.ended(span.group, span.names())
            found = [(ns, group) for group, ns in enumerate(tiers.spaces)]
        else:
            tiers, found = self._open(facts)
        self._spaces = [ns for ns, _ in found]
        spaces = [Space(tiers.manager, ns, self._tokens[group], self._tokens[group] // self._hashed)
                  for ns, group in found]
        self._finder = Finder(spaces, tiers.quick, self._options.ask_nodes_ns if tiers.is_node else 0)
        if self._options.events is not None:
            self._tell(tiers.manager)

    def _tell(self, manager: Manager) -> None:
        if len(self._spaces) != len(self._tokens) or manager.share().role not in (ShareRole.OFF, ShareRole.OWNER):
            raise ConfigurationError("events needs vLLM's scheduler and its one worker in the same process, with tiers "
                                     "that no other process owns: take it out of kv_connector_extra_config here")
        from .told import Told

        parallel = self._config.parallel_config
        rank = int(parallel.data_parallel_rank) if int(parallel.data_parallel_size) > 1 else None
        self._told = Told(manager, self._spaces, self._options.events or {}, rank, self._hashed, self._tokens)

    def _open(self, facts: list[RankFacts]) -> tuple[engines.Tiers, list[tuple[Namespace, int]]]:
        library = engines.among_processes(self._config, self._options.library)
        if not library.share:
            raise ConfigurationError('the workers of this engine are processes of their own: set "share": true in '
                                     "kv_connector_extra_config, so that they and the scheduler have one tier set")
        largest = max(fact.largest for fact in facts)
        # This manager looks up in the workers' manager, and stores nothing itself.
        settings = {**library.settings, "host.capacity": max(16 << 20, 4 * largest)}
        self._tiers = tiers = engines.Tiers(replace(library, settings=settings).open(largest))
        found = []
        for fact in facts:
            for group, name in enumerate(fact.spaces or ()):
                ns = Namespace(tiers.manager, name, tenant=library.tenant, secret=library.secret)
                tiers.spaces.append(ns)
                found.append((ns, group))
        return tiers, found

    def bind(self, manager: Any) -> None:
        if self._options.layers and not hasattr(manager, "evict_blocks"):
            raise ConfigurationError("layers needs a vLLM that can forget single blocks, and this one cannot: leave it out")
        self._manager = manager

    def close(self) -> None:
        if self._told is not None:
            self._told.close()
            self._told = None
        if self._finder is not None:
            self._finder.close()
            self._finder = None
        if self._tiers is not None:
            self._tiers.close()
            self._tiers = None
            engines.forget_place(self._config)
        self._spaces = []

    def reset(self) -> bool:
        """Makes everything that was stored unfindable: the model's weights have changed, say."""
        for request in list(self._requests):
            self._forget_found(request)
            self._stored.pop(request, None)
        self._pending.clear()
        try:
            for ns in self._spaces:
                ns.invalidate()
        except KvbmError as error:
            self._aside.step(f"what was stored before a reset can still be found: {error}")
        return True

    # ---- before a request is scheduled

    def began(self, request: Any) -> None:
        self._requests[request.request_id] = request

    def matched(self, request: Any, computed: int) -> tuple[Optional[int], bool]:
        """Tokens beyond `computed` that can be brought in; None: not known yet."""
        name = request.request_id
        self._requests[name] = request
        self._local[name] = computed
        remote = self._remote_of(request)
        if remote is not None:
            n = min(remote.tokens, int(request.num_prompt_tokens)) - computed
            return (n, True) if n > 0 else (0, False)
        if (self._finder is None or name in self._failed or name in self._left
                or getattr(request, "skip_reading_prefix_cache", False)):
            return 0, False
        finder, hashes = self._finder, self._names.of(request)
        if self._at_once.arriving(hashes[:computed // self._hashed]):
            return None, False
        nothing: Optional[int] = 0
        tokens = self._aside.call(lambda: finder.tokens(name, hashes), nothing)
        if tokens is None:
            return None, False
        if self._being_stored(request, max(tokens, computed)):
            finder.forget(name)  # else it would answer from what it knows
            return None, False
        self._stored[name] = max(self._stored.get(name, 0), tokens)
        if self._options.layers:
            # A step that loads computes, too: at least the last token, and whole blocks are loaded.
            tokens = min(tokens, (int(request.num_tokens) - 1) // self._least * self._least)
        n = min(tokens, int(request.num_tokens)) - computed
        return (n, not self._options.layers) if n > 0 else (0, False)

    def _being_stored(self, request: Any, tokens: int) -> bool:
        """Whether blocks that stand behind so many tokens are about to be found."""
        hashes = self._names.of(request)
        for group, size in enumerate(self._tokens):
            step = size // self._hashed
            last = (tokens // size + 1) * step - 1
            if last < len(hashes) and self._pending.wait(request.request_id, group, bytes(hashes[last])):
                return True
        return False

    def _remote_of(self, request: Any) -> Optional[Remote]:
        if not self._options.handoff or not self._options.consumes:
            return None
        if not decode.wants_remote(request.kv_transfer_params):
            return None
        name = request.request_id
        if name not in self._remote:
            remote = decode.remote_of(name, request.kv_transfer_params) if self._nodes else None
            if remote is not None and remote.prompt != decode.digest(request, remote.tokens):
                log.warning("KvbmConnector: the prefill of request %s was of another prompt or adapter; it is computed "
                            "here", name)
                remote = None
            self._remote[name] = remote
        return self._remote[name]

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        """The request has blocks; `external` of its tokens are to be brought in."""
        name = request.request_id
        remote = self._remote_of(request)
        if remote is None and external == 0:
            return
        first = self._local.get(name, 0)
        ids = blocks.get_block_ids()
        if remote is not None:
            request.kv_transfer_params["do_remote_prefill"] = False
            self._receive(name, remote, first, external, ids[0])
            return
        spans = list(self._spans(request, ids, first, first + external))
        self._loading[name] = {block for span in spans for block in span.block_ids if block}
        if self._options.layers:
            self._at_once.add(name, [block_name for span in spans for block_name in span.names()])
        self._step.loads.append(LoadJob(name, spans))
        self._describe(request, first, first + external)

    def _receive(self, name: str, remote: Remote, first: int, external: int, ids: list[int]) -> None:
        size = self._tokens[0]
        wanted = ids[first // size:-(-(first + external) // size)] if external else []
        if wanted:
            self._loading[name] = set(wanted)
        self._step.receives.append(ReceiveJob(name, remote, first // size, wanted))

    def below(self, request: Any, external: int) -> Optional[int]:
        """How many of the tokens that are brought in come from below host memory; None: they come from a prefill."""
        name = request.request_id
        if self._remote.get(name) is not None:
            return None
        finder, first = self._finder, self._local.get(name, 0)
        if finder is None:
            return 0
        return int(self._aside.call(lambda: finder.below(name, first, first + external), 0))

    # ---- steps

    def step(self, output: Any) -> StepMetadata:
        """The work of the workers in this step."""
        step, self._step = self._step, StepMetadata()
        state = getattr(output, "kv_connector_block_state", None)
        blocks_of = self._manager.get_block_ids if state is None else state.get_block_ids
        for name in self._at_once.step(blocks_of):
            self._loading.pop(name, None)
            self._forget_found(name)
        self._pending.submitted()
        step.idle = output.total_num_scheduled_tokens == 0
        step.written = list(self._written(output))
        step.prompt_tokens = prompt_tokens(output, self._requests)
        self._left.difference_update(output.num_scheduled_tokens)
        if self._finder is None or self._aside.stepped:
            return step
        for name, n in output.num_scheduled_tokens.items():
            request = self._requests.get(name)
            if request is None:
                continue
            begin = self._stored.get(name, 0)
            # Tokens with KV after this step, of those that the engine knows: drafts may be refused.
            end = min(int(request.num_computed_tokens) + n, len(self._names.of(request)) * self._hashed)
            if end // self._least == begin // self._least:
                continue
            ids = blocks_of(name)
            spans = list(self._spans(request, ids, begin, end)) if ids is not None else []
            if spans:
                step.stores.append(StoreJob(name, spans))
                for span in spans:
                    self._pending.order(span.group, span.names())
                self._describe(request, begin, end)
                self._stored[name] = end
        if step.stores:
            step.spaces = [ns.id for ns in self._spaces]
        return step

    def _describe(self, request: Any, first: int, upto: int) -> None:
        told = self._told
        if told is not None:
            self._aside.call(lambda: told.describe(request, self._names.of(request), first, upto), None)

    def _spans(self, request: Any, ids: tuple[list[int], ...], first: int, upto: int) -> Iterator[Span]:
        """The blocks that lie in tokens [first, upto), by group of layers."""
        hashes = self._names.of(request)
        for group, size in enumerate(self._tokens):
            step = size // self._hashed
            begin, end = first // size, min(upto // size, len(ids[group]))
            while begin < end and ids[group][begin] == 0:
                begin += 1  # before a window
            if begin >= end:
                continue
            named = [hashes[(i + 1) * step - 1] for i in range(begin, end)]
            parent = hashes[begin * step - 1] if begin else None
            yield Span(group, b"".join(named), len(named[0]), list(ids[group][begin:end]), parent)

    def _written(self, output: Any) -> Iterator[int]:
        """Blocks that were given to requests for this step to write."""
        for new in output.scheduled_new_reqs:
            yield from self._behind(new.block_ids, new.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        for name, ids, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
            if ids is not None:
                yield from self._behind(ids, computed if name in cached.resumed_req_ids else 0)

    def _behind(self, ids: tuple[list[int], ...], computed: int) -> Iterator[int]:
        for group, blocks in enumerate(ids):
            yield from blocks[computed // self._tokens[group]:]

    # ---- afterwards

    def heard(self, output: Any) -> None:
        """The workers' answers: loads that failed are not tried again, and their blocks are stored anew. Those that
        were left to compute may be loaded when the request comes back after a preemption."""
        bad = set(output.invalid_block_ids or ())
        told = getattr(output, "kv_connector_worker_meta", None)
        left = told.left if isinstance(told, Heard) else set()
        failed = set(getattr(output, "failed_recving", None) or ())
        if bad or failed:
            for name, blocks in self._loading.items():
                if name in left:
                    self._left.add(name)
                elif name in failed or bad & blocks:
                    self._failed.add(name)
                    self._stored.pop(name, None)
            unsound = self._at_once.unsound(bad)
            if unsound:
                self._manager.evict_blocks(unsound)
        for name in output.finished_recving or ():
            self._loading.pop(name, None)
            self._remote.pop(name, None)
            self._forget_found(name)

    def finished(self, request: Any, ids: tuple[list[int], ...]) -> tuple[bool, Optional[dict[str, Any]]]:
        """Whether the request's blocks are kept for a decode engine, and the parameters for that engine."""
        name, params = request.request_id, request.kv_transfer_params
        remote = self._remote_of(request)
        if remote is not None:  # ended before it had blocks: the prefill engine need not wait
            self._step.receives.append(ReceiveJob(name, remote, 0, []))
            params["do_remote_prefill"] = False
        told = self._offer(request, ids) if decode.wants_offer(params) else None
        for table in (self._requests, self._stored, self._local, self._remote):
            table.pop(name, None)
        self._pending.forget(name)
        self._names.forget(name)
        self._failed.discard(name)
        self._left.discard(name)
        if name not in self._loading:
            self._forget_found(name)
        return told is not None, told

    def _offer(self, request: Any, ids: tuple[list[int], ...]) -> Optional[dict[str, Any]]:
        if not (self._options.handoff and self._options.produces and len(self._nodes) == self._ranks):
            return None
        tokens = min(int(request.num_computed_tokens), int(request.num_tokens) - 1, int(request.num_prompt_tokens))
        blocks = ids[0][:-(-tokens // self._tokens[0])]
        prompt = decode.digest(request, tokens)
        if request.status.name not in _ENDED_WELL or not blocks or 0 in blocks or len(ids) != 1 or prompt is None:
            return None
        job = OfferJob(request.request_id, uuid.uuid4().hex, blocks)
        worker = engines.worker_of(self._engine) if self._ranks == 1 else None
        if worker is not None and worker.handoff is not None:
            worker.handoff.offer(job)  # an engine without a loop of its own may make no further step
        else:
            self._step.offers.append(job)
        return decode.answer(self._engine, request.request_id, Remote(job.offer, self._nodes, tokens, prompt))

    def _forget_found(self, name: str) -> None:
        if self._finder is not None:
            self._finder.forget(name)
