"""libkvbm's counters as vLLM's metrics: they appear where vLLM's own do, in /metrics and in its log."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata, OffloadingGaugeMetadata, OffloadingMetricMetadata

from ..engine import Aside
from ..stats import Stats

BYTES, BLOCKS, HITS = "vllm:kvbm_tier_bytes", "vllm:kvbm_tier_blocks", "vllm:kvbm_tier_hits"
LOADS, STORES = "vllm:kvbm_tier_load_bytes", "vllm:kvbm_tier_store_bytes"
DAMAGED, EVICTIONS = "vllm:kvbm_damaged_blocks", "vllm:kvbm_tier_evictions"
REFUSED, ASIDE = "vllm:kvbm_stores_refused", "vllm:kvbm_aside"
LEFT, NOT_STARTED = "vllm:kvbm_left_blocks", "vllm:kvbm_loads_not_started"
PREDICTED, ACTUAL = "vllm:kvbm_load_predicted_seconds", "vllm:kvbm_load_actual_seconds"
# Of loads that were weighed: what they are called here, in Stats, and in which unit.
_WEIGHED = {LEFT: ("blocks_left", 1), NOT_STARTED: ("loads_not_started", 1), PREDICTED: ("load_predicted_ns", 1e9),
            ACTUAL: ("load_actual_ns", 1e9)}
_COUNTERS = {HITS: "hits", LOADS: "load_bytes", STORES: "store_bytes", EVICTIONS: "evictions", DAMAGED: "damaged"}
_MEANINGS = {
    HITS: "Blocks that lookups found in a tier of libkvbm first.",
    LOADS: "Bytes that came out of a tier of libkvbm, verified.",
    STORES: "Bytes that came into a tier of libkvbm.",
    EVICTIONS: "Blocks that a tier of libkvbm evicted.",
    DAMAGED: "Blocks that did not verify; each was computed instead of used.",
}


@dataclass
class Weighed:
    """Results of loads that were weighed here and not by the library, since the last call; with the library's names."""

    left: int = 0
    not_started: int = 0
    predicted_ns: int = 0
    actual_ns: int = 0

    def take(self, counter: str) -> int:
        name = {"blocks_left": "left", "loads_not_started": "not_started", "load_predicted_ns": "predicted_ns",
                "load_actual_ns": "actual_ns"}[counter]
        taken: int = getattr(self, name)
        setattr(self, name, 0)
        return taken


def definitions() -> dict[str, OffloadingMetricMetadata]:
    labels = ("tier",)
    found: dict[str, OffloadingMetricMetadata] = {
        name: OffloadingCounterMetadata(documentation=text, labelnames=labels) for name, text in _MEANINGS.items()}
    found[BYTES] = OffloadingGaugeMetadata(documentation="Bytes in a tier of libkvbm.", labelnames=labels)
    found[BLOCKS] = OffloadingGaugeMetadata(documentation="Blocks in a tier of libkvbm.", labelnames=labels)
    found[LEFT] = OffloadingCounterMetadata(
        documentation="Blocks that were found and left to compute, because loading them would have taken longer.")
    found[NOT_STARTED] = OffloadingCounterMetadata(
        documentation="Loads that were left as a whole: computing all of it would be over sooner.")
    found[PREDICTED] = OffloadingCounterMetadata(
        documentation="What loads that were started were thought to take, of those that are weighed.")
    found[ACTUAL] = OffloadingCounterMetadata(documentation="What they took.")
    found[REFUSED] = OffloadingCounterMetadata(documentation="Blocks that libkvbm had no room for.")
    found[ASIDE] = OffloadingGaugeMetadata(documentation="1: libkvbm failed, and the engine goes on without it.")
    return found


def observed(now: Optional[Stats], before: Optional[Stats], aside: Aside, weighed: Optional[Weighed] = None) -> Any:
    """Changes since `before`."""
    stats = OffloadingConnectorStats()
    stats.set_gauge(ASIDE, int(aside.stepped))
    if now is None:
        return stats
    for i, tier in enumerate(now.tiers):
        label = ("host" if i == 0 else f"{i}",)
        stats.set_gauge(BYTES, tier.used_bytes, label)
        stats.set_gauge(BLOCKS, tier.blocks, label)
        old = before.tiers[i] if before is not None and i < len(before.tiers) else None
        for name, counter in _COUNTERS.items():
            more = getattr(tier, counter) - (getattr(old, counter) if old is not None else 0)
            if more > 0:
                stats.increase_counter(name, more, label)
    for name, (counter, unit) in _WEIGHED.items():
        more = getattr(now, counter) - (getattr(before, counter) if before is not None else 0)
        more += weighed.take(counter) if weighed is not None else 0
        if more > 0:
            stats.increase_counter(name, more / unit if unit != 1 else more)
    more = now.stores_refused_room - (before.stores_refused_room if before is not None else 0)
    if more > 0:
        stats.increase_counter(REFUSED, more)
    return stats
