"""The connector's counters for vLLM's own metrics."""
from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

NAMES = {
    "stored_blocks": "Blocks that were brought into the tiers, or were there already.",
    "stored_bytes": "Bytes that were copied into the tiers.",
    "store_failures": "Blocks that found no room in the tiers.",
    "loaded_blocks": "Blocks that were loaded and verified.",
    "loaded_bytes": "Bytes that were loaded.",
    "load_failures": "Blocks that were to be loaded and are computed instead.",
    "left_blocks": "Blocks that were found and left to compute, because loading them would have taken longer.",
    "loads_not_started": "Loads that were left as a whole: computing all of it would be over sooner.",
    "load_predicted_seconds": "What loads that were started were thought to take, of those that are weighed.",
    "load_actual_seconds": "What they took.",
    "store_waits": "Steps that waited for a store because they were about to write the block that it reads.",
    "sent_requests": "Prefills that were handed to a decode engine.",
    "send_failures": "Prefills that no decode engine fetched.",
    "received_requests": "Requests that came from a prefill engine.",
    "received_bytes": "Bytes of them.",
    "receive_failures": "Requests that should have come from a prefill engine and are computed instead.",
}


class KvbmStats(KVConnectorStats):  # type: ignore[misc]
    """Counts since the last interval; `data` is name -> number."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def add(self, name: str, n: float = 1) -> None:
        if n:
            self.data[name] = self.data.get(name, 0) + n

    def take(self) -> KvbmStats:
        taken = KvbmStats(data=self.data)
        self.reset()
        return taken

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, n in other.data.items():
            self.add(name, n)
        return self

    def reduce(self) -> dict[str, Any]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not self.data


class KvbmPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """vllm:kvbm_*_total, by engine."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine: dict[int, list[object]],
                 **more: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine, **more)
        self._counters: dict[str, Any] = {}
        for name, text in NAMES.items():
            counter = self._counter_cls(name=f"vllm:kvbm_{name}", documentation=text, labelnames=labelnames)
            self._counters[name] = {engine: counter.labels(*values) for engine, values in per_engine.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, n in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(n)
