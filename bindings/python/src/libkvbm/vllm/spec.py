"""vLLM's tiered offloading with libkvbm below its host pool, whole: it needs nothing but the name of this class, and
works where vLLM runs on CPUs, too."""
from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from . import compat

compat.check(compat.TIER, compat.SPEC)

from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion  # noqa: E402
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec  # noqa: E402

from ..engine import ConfigurationError  # noqa: E402
from ..engine.configuration import size_of  # noqa: E402
from .tiles import ask_for_tiles  # noqa: E402
from .worker import HostWorker  # noqa: E402

_POOL = "cpu_bytes_to_use"


class KvbmTieringSpec(TieringOffloadingSpec):  # type: ignore[misc]
    """kv_connector_extra_config: {"spec_name": "KvbmTieringSpec", "spec_module_path": "libkvbm.vllm", "kvbm": {...}}.
    "kvbm" has the options of KvbmTier; "pool", 512MiB, is the size of vLLM's host pool, through which blocks pass."""

    @classmethod
    def build_metric_definitions(cls, extra_config: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = super().build_metric_definitions(_whole(extra_config))
        return found

    @classmethod
    def config_info_keys(cls, extra_config: Mapping[str, Any]) -> tuple[str, ...]:  # vLLM 0.33
        found: tuple[str, ...] = super().config_info_keys(_whole(extra_config))
        return found

    def __init__(self, config: Any) -> None:
        self._worker: Any = None
        super().__init__(dataclasses.replace(config, extra_config=_whole(config.extra_config)))
        if self.num_chunks < 2:
            raise ConfigurationError(f"the pool has room for {self.num_chunks} blocks of {self.kv_bytes_per_chunk} "
                                     "bytes: give more to pool")

    def get_worker(self, kv_caches: Any) -> Any:
        if current_platform.is_cuda_alike() or current_platform.is_xpu():
            return super().get_worker(kv_caches)
        if not self._worker:
            ask_for_tiles()
            if self.config.canonical_layout:
                raise ConfigurationError("canonical_layout is for GPUs: take it out of kv_connector_extra_config")
            region = SharedOffloadRegion(engine_id=self.config.engine_id, num_chunks=self.num_chunks,
                                         rank=0 if self.replicated_layout else self.config.parallel.rank,
                                         kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                                         cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = HostWorker(kv_caches, self.blocks_per_chunk, region)
        return self._worker


def _whole(given: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's own options out of ours: the pool's size and our tier as the first of the secondary ones."""
    extra = dict(given)
    own = extra.pop("kvbm", {})
    if not isinstance(own, Mapping):
        raise ConfigurationError(f"kvbm is {own!r}: a table of libkvbm's options is expected")
    tier = dict(own)
    pool = tier.pop("pool", None)
    if _POOL in extra and pool is not None:
        raise ConfigurationError(f"pool and {_POOL} are the same: give one of them")
    extra.setdefault(_POOL, size_of(pool if pool is not None else "512MiB", "pool"))
    ours = {"type": "KvbmTier", "module_path": "libkvbm.vllm", **tier}
    extra["secondary_tiers"] = [ours, *extra.get("secondary_tiers", [])]
    return extra
