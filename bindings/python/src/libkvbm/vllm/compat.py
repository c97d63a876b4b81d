"""Whether the vLLM that is installed has the interface that these plug-ins were written for. vLLM calls it
experimental; a plug-in that meets another one must not find out in the middle of a request."""
from __future__ import annotations

import dataclasses
import importlib
import inspect
import logging
from typing import Any, Mapping, Optional

from ..engine import ConfigurationError

SUPPORTED = ("0.32", "0.33")
_BASE = "vllm.v1.kv_offload.base"
_TIERS = "vllm.v1.kv_offload.tiering.base"

# Module -> class -> its methods with the arguments that are given or expected by name, or fields (None).
Needs = Mapping[str, Mapping[str, Mapping[str, Optional[tuple[str, ...]]]]]

TIER: Needs = {
    _BASE: {
        "LookupResult": {"HIT": None, "MISS": None, "RETRY": None},
        "ReqContext": {"req_id": None, "set_state": ("val",), "get_state": ("cls",),
                       "get_offload_key_position": ("key",)},
        "RequestOffloadingContext": {},
        "Medium": {"STORAGE": None},
        "OffloadingCounterMetadata": {"documentation": None},
        "OffloadingGaugeMetadata": {"documentation": None},
    },
    _TIERS: {
        "SecondaryTierManager": {
            "__init__": ("offloading_spec", "primary_kv_view", "tier_type", "backpressure_detector"),
            "lookup": ("key", "req_context"), "submit_store": ("job_metadata",), "submit_load": ("job_metadata",),
            "get_finished_jobs": (), "on_new_request": ("req_context",), "on_request_finished": ("req_context",),
            "drain_jobs": (), "has_pending_work": (), "shutdown": (), "get_stats": (),
            "build_metric_definitions": ("extra_config",)},
        "TransferJob": {"job_id": None, "keys": None, "chunk_ids": None, "is_promotion": None, "req_context": None},
        "JobResult": {"job_id": None, "success": None, "successful_keys": None, "transfer_time": None,
                      "transfer_bytes": None},
    },
    "vllm.v1.kv_offload.config": {
        "OffloadingConfig": {"groups": None, "worker_kv_bytes_per_block": None, "extra_config": None,
                             "engine_id": None, "model": None, "cache": None, "parallel": None,
                             "canonical_layout": None, "kv_cache_layout": None},
        "OffloadingGroupConfig": {"tokens_per_block": None, "layer_names": None, "group_id": None},
        "OffloadingParallelConfig": {"rank": None, "world_size": None, "tp_size": None, "pp_size": None,
                                     "pcp_size": None, "dcp_size": None},
    },
}
SPEC: Needs = {
    _BASE: {
        "OffloadingWorker": {"submit_store": ("job_id", "src_spec", "dst_spec"),
                             "submit_load": ("job_id", "src_spec", "dst_spec"), "get_finished": (),
                             "wait": ("job_ids",), "shutdown": ()},
        "TransferResult": {"job_id": None, "success": None, "transfer_size": None, "transfer_time": None},
        "GPULoadStoreSpec": {"__init__": ("block_ids", "group_sizes", "block_indices")},
        "CanonicalKVCacheTensor": {"tensor": None, "page_size_bytes": None},
        "CanonicalKVCacheRef": {"tensor_idx": None, "page_size_bytes": None},
        "CanonicalKVCaches": {"tensors": None, "group_data_refs": None},
    },
    "vllm.v1.kv_offload.tiering.spec": {
        "TieringOffloadingSpec": {"get_worker": ("kv_caches",), "create_worker": ("kv_caches",)},
    },
    "vllm.v1.kv_offload.cpu.shared_offload_region": {
        "SharedOffloadRegion": {"__init__": ("engine_id", "num_chunks", "rank", "kv_bytes_per_chunk",
                                             "cpu_page_size"),
                                "create_next_worker_view": ("tensor_page_size",), "cleanup": ()},
    },
}
DIRECT: Needs = {
    _BASE: {
        "LookupResult": {"HIT_PENDING": None},
        "OffloadingSpec": {"__init__": ("config",), "get_manager": (), "get_worker": ("kv_caches",)},
        "OffloadingManager": {
            "lookup": ("key", "req_context"), "prepare_load": ("keys", "req_context"),
            "complete_load": ("keys", "req_context"), "prepare_store": ("keys", "req_context"),
            "complete_store": ("keys", "req_context", "success"), "on_new_request": ("req_context",),
            "on_request_finished": ("req_context",), "on_schedule_end": ("context",), "has_pending_work": (),
            "reset_cache": (), "get_stats": (), "shutdown": ()},
        "PrepareStoreOutput": {"keys_to_store": None, "store_spec": None, "evicted_keys": None},
        "LoadStoreSpec": {},
    },
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector": {
        "OffloadingConnector": {"get_block_ids_with_load_errors": (), "get_transfer_results": ("finished_req_ids",),
                                "build_connector_worker_meta": (), "update_connector_output": ("connector_output",)},
    },
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.common": {
        "OffloadingWorkerMetadata": {"completed_jobs": None, "aggregate": ("other",)},
    },
}


def check(*needs: Needs) -> None:
    """Raises ConfigurationError, naming what is missing, where the installed vLLM is another one."""
    import vllm

    version = str(getattr(vllm, "__version__", "of an unknown version"))
    missing = missing_of(*needs)
    if missing:
        raise ConfigurationError(f"libkvbm.vllm knows vLLM {' and '.join(SUPPORTED)}; the one that is installed, "
                                 f"{version}, has no {missing[0]}: install one of those")
    if not version.startswith(SUPPORTED):
        logging.getLogger("libkvbm").warning("libkvbm.vllm was tested with vLLM %s, and this is %s, whose interface "
                                             "looks the same", " and ".join(SUPPORTED), version)


def missing_of(*needs: Needs) -> list[str]:
    """The missing parts of the interface in the installed vLLM, by name."""
    missing = []
    for need in needs:
        for module, classes in need.items():
            try:
                found = importlib.import_module(module)
            except ImportError as error:
                missing.append(f"{module} ({error})")
                continue
            for name, members in classes.items():
                there = getattr(found, name, None)
                if there is None:
                    missing.append(f"{module}.{name}")
                else:
                    missing += _lacks(there, f"{module}.{name}", members)
    return missing


def _lacks(there: Any, name: str, members: Mapping[str, Optional[tuple[str, ...]]]) -> list[str]:
    fields = {f.name for f in dataclasses.fields(there)} if dataclasses.is_dataclass(there) else set()
    missing = []
    for member, arguments in members.items():
        if member not in fields and not hasattr(there, member):
            missing.append(f"{name}.{member}")
        elif arguments is not None:
            known = inspect.signature(getattr(there, member)).parameters
            missing += [f"argument {argument} of {name}.{member}" for argument in arguments if argument not in known]
    return missing
