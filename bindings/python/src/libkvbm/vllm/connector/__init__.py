"""A KV connector for vLLM: keeps the blocks of requests in libkvbm's tiers and loads them back, and hands prefills over
to other engines for decoding.

    --kv-transfer-config '{"kv_connector": "KvbmConnector", "kv_connector_module_path": "libkvbm.vllm.connector",
      "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
      "kv_connector_extra_config": {"settings": {"host.capacity": "8GiB"}}}'
"""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Optional

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (
        KVConnectorBase_V1, KVConnectorRole, KVConnectorTransferResults, SupportsHMA,
    )
    from vllm.v1.metrics.cache_hit_source import CacheHitSource

    from .counts import KvbmPromMetrics, KvbmStats
except ImportError as error:
    from . import interface

    raise ImportError(f"KvbmConnector supports vLLM {' and '.join(interface.SUPPORTED)}, and this is vLLM "
                      f"{interface.version()}: {error}") from error

from . import interface
from .metadata import Heard, RankFacts, StepMetadata
from .options import Options
from .scheduler import SchedulerSide
from .worker import Results, WorkerSide

if TYPE_CHECKING:
    import torch

__all__ = ["KvbmConnector"]


class KvbmConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Both halves: vLLM makes one for its scheduler and one for each worker."""

    _cache_hit_source = CacheHitSource.HOST

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        interface.check(KVConnectorBase_V1)
        super().__init__(vllm_config, role, kv_cache_config)
        self._options = Options.of(vllm_config.kv_transfer_config)
        self._scheduler: Optional[SchedulerSide] = None
        self._worker: Optional[WorkerSide] = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(vllm_config, kv_cache_config, self._options)
        else:
            self._worker = WorkerSide(vllm_config, kv_cache_config, self._options)

    @property
    def scheduler(self) -> SchedulerSide:
        assert self._scheduler is not None, "a call for the scheduler's half"
        return self._scheduler

    @property
    def worker(self) -> WorkerSide:
        assert self._worker is not None, "a call for the worker's half"
        return self._worker

    @property
    def requires_kv_delivery(self) -> bool:
        return self._options.handoff and self._options.produces

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        return False  # the tiers hold the cache's memory

    # ---- the scheduler's half

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self.scheduler.bind(kv_cache_manager)

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], RankFacts]) -> None:
        self.scheduler.meet({facts.rank: facts for facts in metadata.values()})

    def on_new_request(self, request: Any) -> None:
        self.scheduler.began(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[Optional[int], bool]:
        return self.scheduler.matched(request, num_computed_tokens)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return tuple(range(len(self._kv_cache_config.kv_cache_groups)))

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self.scheduler.allocated(request, blocks, num_external_tokens)

    def get_external_cache_hit_sources(self, request: Any, num_external_tokens: int) -> dict[CacheHitSource, int]:
        below = self.scheduler.below(request, num_external_tokens)
        if below is None:
            return {CacheHitSource.P2P: num_external_tokens}
        sources = {CacheHitSource.HOST: num_external_tokens - below, CacheHitSource.DISK: below}
        return {source: n for source, n in sources.items() if n}

    def build_connector_meta(self, scheduler_output: Any) -> StepMetadata:
        return self.scheduler.step(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        self.scheduler.heard(connector_output)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, Optional[dict[str, Any]]]:
        return self.scheduler.finished(request, (block_ids,))

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...],
                                    ) -> tuple[bool, Optional[dict[str, Any]]]:
        return self.scheduler.finished(request, block_ids)

    def reset_cache(self) -> Optional[bool]:
        return self.scheduler.reset()

    # ---- the worker's half

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self.worker.register(kv_caches)

    def get_handshake_metadata(self) -> RankFacts:
        return self.worker.facts()

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        self.worker.before_writes(kv_connector_metadata)

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None:
            self._worker.began(connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self.worker.load(self._get_connector_metadata())

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return bool(extra_config.get("layers", False))  # its calls are made within attention

    def wait_for_layer_load(self, layer_name: str) -> None:
        """With the option `layers`; else loads end between steps."""
        self.worker.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing: blocks are stored after the step that filled them."""

    def wait_for_save(self) -> None:
        self.worker.store(self._get_connector_metadata())

    def get_finished(self, finished_req_ids: set[str]) -> tuple[Optional[set[str]], Optional[set[str]]]:
        ended = self._ended()
        return ended.sent or None, ended.received or None

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        ended = self._ended()
        return KVConnectorTransferResults(ended.sent, ended.received, ended.failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self.worker.bad_blocks()

    def build_connector_worker_meta(self) -> Optional[Heard]:
        left = self.worker.left()
        return Heard(left) if left else None

    def get_kv_connector_stats(self) -> Optional[KvbmStats]:
        if self._worker is None or self._worker.stats.is_empty():
            return None
        return self._worker.stats.take()

    def _ended(self) -> Results:
        idle = self.has_connector_metadata() and self._get_connector_metadata().idle
        return self.worker.results(idle)

    # ---- both

    def shutdown(self) -> None:
        for half in (self._scheduler, self._worker):
            if half is not None:
                half.close()

    @classmethod
    def build_kv_connector_stats(cls, data: Optional[dict[str, Any]] = None) -> KvbmStats:
        return KvbmStats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: list[str],
                           per_engine_labelvalues: dict[int, list[object]]) -> KvbmPromMetrics:
        return KvbmPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


logging.getLogger("vllm.libkvbm").addHandler(logging.NullHandler())
