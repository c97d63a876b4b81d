"""Pages and bandwidth of loads and stores, as SGLang's metrics want them."""
from __future__ import annotations

import threading
from typing import Any

_KEPT = 4096  # samples of each kind until they are read


class Rates:
    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()
        self._loads: list[tuple[int, float]] = []
        self._stores: list[tuple[int, float]] = []

    def loaded(self, pages: int, page_bytes: int, seconds: float) -> None:
        self._note(self._loads, pages, page_bytes, seconds)

    def stored(self, pages: int, page_bytes: int, seconds: float) -> None:
        self._note(self._stores, pages, page_bytes, seconds)

    def take(self, counters: Any) -> Any:
        from sglang.srt.observability.metrics_collector import StorageMetrics

        metrics = StorageMetrics()
        metrics.kvbm = counters
        with self._lock:
            loads, self._loads = self._loads, []
            stores, self._stores = self._stores, []
        metrics.prefetch_pgs.extend(pages for pages, _ in loads)
        metrics.prefetch_bandwidth.extend(rate for _, rate in loads)
        metrics.backup_pgs.extend(pages for pages, _ in stores)
        metrics.backup_bandwidth.extend(rate for _, rate in stores)
        return metrics

    def _note(self, rows: list[tuple[int, float]], pages: int, page_bytes: int, seconds: float) -> None:
        if self._wanted and pages and seconds > 0:
            with self._lock:
                if len(rows) < _KEPT:
                    rows.append((pages, pages * page_bytes / seconds / (1 << 30)))
