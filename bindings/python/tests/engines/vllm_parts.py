"""The scheduler's part and the worker's part of vLLM's offloading around a small KV cache of ours, without an engine:
what OffloadingConnector would call, in its order."""
from __future__ import annotations

import time
import uuid
from types import SimpleNamespace as Made
from typing import Any, Optional

import torch
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor, GPULoadStoreSpec, LookupResult, ReqContext,
    ScheduleEndContext, make_offload_key,
)
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig, OffloadingModelConfig, OffloadingParallelConfig,
)

from libkvbm.vllm import adapters, pages

PAGE, N_BLOCKS, LAYERS = 512, 16, 2
kv_cache_utils.init_none_hash(get_hash_fn_by_name("sha256"))


def config_of(extra: dict[str, Any], *, groups: int = 1, blocks_per_chunk: int = 1, **parallel: int) -> Any:
    sizes = {"rank": 0, "world_size": 1, "tp_size": 1, "pp_size": 1, "pcp_size": 1, "dcp_size": 1,
             "data_parallel_index": 0, "data_parallel_size": 1} | parallel
    return OffloadingConfig(
        groups=tuple(OffloadingGroupConfig(tokens_per_block=32, layer_names=(f"a{g}", f"b{g}"), group_id=g)
                     for g in range(groups)),
        worker_kv_bytes_per_block=PAGE * LAYERS, enable_kv_cache_events=False, extra_config=extra,
        engine_id=f"test-{uuid.uuid4()}", model=OffloadingModelConfig(name="a model", dtype="bfloat16"),
        cache=OffloadingCacheConfig(tokens_per_hash=32, blocks_per_chunk=blocks_per_chunk),
        parallel=OffloadingParallelConfig(data_parallel_rank_local=None, is_parallelism_agnostic=False, **sizes),
        kv_cache_layout="LBHNC")


def engine_of(model: str = "a/model", revision: Optional[str] = "a" * 40, max_model_len: int = 4096, lengthened: str = "",
              cache: Optional[dict[str, Any]] = None, images: Optional[dict[str, Any]] = None, **config: Any) -> Any:
    """The engine's facts in vLLM's own configuration. `config` is the model's, with overrides; `lengthened` its method
    for long prompts."""
    rope = {"rope_type": lengthened} if lengthened else None
    return Made(
        model_config=Made(model=model, revision=revision, dtype=torch.bfloat16, quantization=None, seed=0,
                          max_model_len=max_model_len, get_head_size=lambda: 64,
                          multimodal_config=None if images is None else Made(**images),
                          hf_config=Made(to_dict=lambda: {"hidden_size": 64, "rope_parameters": rope} | config)),
        load_config=Made(load_format="auto"), speculative_config=None,
        cache_config=Made(cache_dtype="auto", prefix_caching_hash_algo="sha256", **(cache or {})),
        compilation_config=Made(static_forward_context={}))


def caches_of(groups: int = 1) -> CanonicalKVCaches:
    tensors = [CanonicalKVCacheTensor(torch.zeros((N_BLOCKS, PAGE), dtype=torch.int8), PAGE) for _ in range(LAYERS)]
    return CanonicalKVCaches(tensors, [[CanonicalKVCacheRef(i, PAGE) for i in range(LAYERS)] for _ in range(groups)])


def keys_of(n: int, group: int = 0, what: str = "prompt") -> list[Any]:
    hash_of = get_hash_fn_by_name("sha256")
    return [make_offload_key(hash_of((what, i)), group) for i in range(n)]


class Parts:
    """A spec's manager and worker, driven like KvbmOffloadingConnector drives them."""

    def __init__(self, spec: Any, caches: CanonicalKVCaches, engine: Any = None) -> None:
        self.caches = caches
        with pages.starting(engine or engine_of()):
            self.worker = spec.get_worker(caches)
            self.manager = spec.get_manager()
        self._jobs = 0

    def request(self, adapter: Any = None) -> ReqContext:
        context = ReqContext(req_id=str(uuid.uuid4()))
        with adapters.asking(Made(lora_request=adapter)):
            self.manager.on_new_request(context)
        return context

    def fill(self, block: int, byte: int) -> None:
        for tensor in self.caches.tensors:
            tensor.tensor[block] = byte

    def content(self, block: int) -> set[int]:
        return {int(x) for tensor in self.caches.tensors for x in tensor.tensor[block].tolist()}

    def step(self) -> None:
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def store(self, keys: list[Any], blocks: list[int], groups: tuple[int, ...] = (), first: tuple[int, ...] = (),
              adapter: Any = None) -> list[Any]:
        """As a request that has computed these blocks. Returns what was stored."""
        request = self.request(adapter)
        output = self.manager.prepare_store(keys, request)
        if output is None or not output.keys_to_store:
            return []
        if len(output.keys_to_store) == len(keys):
            source = GPULoadStoreSpec(blocks, groups or [len(blocks)], first or [0] * max(1, len(groups)))
            job = self._job(lambda job: self.worker.submit_store(job, source, output.store_spec))
            self.worker.wait({job})
            self._finished(job)
            self.manager.complete_store(set(output.keys_to_store), request)
        self.step()
        self.settle()
        self.manager.on_request_finished(request)
        return list(output.keys_to_store)

    def find(self, keys: list[Any], request: ReqContext, limit_s: float = 20) -> int:
        """Leading keys that can be loaded, as vLLM's scheduler asks: again and again while one is not decided."""
        end = time.monotonic() + limit_s
        while True:
            results = []
            for key in keys:
                results.append(self.manager.lookup(key, request))
                if results[-1] is LookupResult.MISS:
                    break
            if all(r in (LookupResult.HIT, LookupResult.MISS) for r in results):
                return sum(r is LookupResult.HIT for r in results)
            assert time.monotonic() < end, results
            self.step()

    def load(self, keys: list[Any], blocks: list[int], request: ReqContext, groups: tuple[int, ...] = (),
             first: tuple[int, ...] = ()) -> None:
        source = self.manager.prepare_load(keys, request)
        target = GPULoadStoreSpec(blocks, groups or [len(blocks)], first or [0] * max(1, len(groups)))
        self.step()
        job = self._job(lambda job: self.worker.submit_load(job, source, target))
        self.worker.wait({job})
        self._finished(job)
        self.manager.complete_load(set(keys), request)

    def settle(self, limit_s: float = 20) -> None:
        end = time.monotonic() + limit_s
        while self.manager.has_pending_work():
            assert time.monotonic() < end
            self.step()

    def close(self) -> None:
        self.worker.shutdown()
        self.manager.shutdown()

    def _job(self, submit: Any) -> int:
        self._jobs += 1
        assert submit(self._jobs)
        return self._jobs

    def _finished(self, job: int) -> None:
        end = time.monotonic() + 20
        while not any(result.job_id == job for result in self.worker.get_finished()):
            assert time.monotonic() < end
