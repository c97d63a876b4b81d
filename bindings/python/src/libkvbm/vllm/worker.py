"""Copies blocks between a KV cache in host memory, as vLLM on CPUs has it, and rows of vLLM's host pool."""
from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Iterator, NamedTuple

import numpy
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult

from .pace import REST_NS, Pace


class Group(NamedTuple):
    """The blocks of one group of layers in a transfer: block i is part `parts[i]` of `chunks[i]`."""

    number: int
    blocks: Any
    chunks: Any
    parts: Any


def groups_of(device_spec: Any, chunk_ids: Any, blocks_per_chunk: int) -> Iterator[Group]:
    """Pairs the blocks of a GPULoadStoreSpec with chunks, which are given group after group. A group's first block may
    stand in the middle of its first chunk."""
    block, chunk = 0, 0
    for index, (size, first) in enumerate(zip(device_spec.group_sizes, device_spec.block_indices)):
        if size == 0:
            continue
        places = first % blocks_per_chunk + numpy.arange(size)
        n = int(places[-1]) // blocks_per_chunk + 1
        yield Group(index, device_spec.block_ids[block:block + size],
                    chunk_ids[chunk:chunk + n][places // blocks_per_chunk], places % blocks_per_chunk)
        block, chunk = block + size, chunk + n
    if block != len(device_spec.block_ids) or chunk != len(chunk_ids):
        raise ValueError(f"{len(device_spec.block_ids)} blocks and {len(chunk_ids)} chunks do not belong together")


def bytes_of(tensor: Any) -> Any:
    """A view of a tensor of the KV cache as [block][byte], without a copy."""
    import torch

    flat = tensor.view(torch.int8)
    return flat.reshape(flat.shape[0], -1).numpy() if flat.is_contiguous() else flat.numpy()


class HostWorker(OffloadingWorker):  # type: ignore[misc]
    """One thread copies; vLLM asks what has finished. A copy in memory does not fail."""

    def __init__(self, kv_caches: Any, blocks_per_chunk: int, region: Any) -> None:
        self._region = region
        self._blocks_per_chunk = blocks_per_chunk
        self._caches = [bytes_of(tensor.tensor) for tensor in kv_caches.tensors]
        self._pool = []
        for tensor in kv_caches.tensors:
            page = tensor.page_size_bytes
            view = region.create_next_worker_view(page * blocks_per_chunk)
            self._pool.append(view.as_strided((view.shape[0], blocks_per_chunk, page), (view.stride(0), page, 1)
                                              ).numpy())
        self._tensors = [sorted({ref.tensor_idx for ref in refs}) for refs in kv_caches.group_data_refs]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kvbm-vllm-copy")
        self._running: dict[int, Future[TransferResult]] = {}
        self._loads: set[int] = set()
        self._pace = Pace()

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._running[job_id] = self._thread.submit(self._copy, job_id, src_spec, dst_spec.block_ids, True)
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, **later: Any) -> bool:
        self._loads.add(job_id)
        self._running[job_id] = self._thread.submit(self._copy, job_id, dst_spec, src_spec.block_ids, False)
        return True

    def get_finished(self) -> list[Any]:
        if self._pace.idle() and self._loads:
            wait([self._running[job_id] for job_id in self._loads], REST_NS / 1e9, FIRST_COMPLETED)
            self._pace.rested()
        finished = [job_id for job_id, job in self._running.items() if job.done()]
        self._loads.difference_update(finished)
        return [self._running.pop(job_id).result() for job_id in finished]

    def wait(self, job_ids: set[int]) -> None:
        wait([job for job_id, job in self._running.items() if job_id in job_ids])

    def shutdown(self) -> None:
        self._thread.shutdown()
        self._pool.clear()
        self._caches.clear()
        self._region.cleanup()

    def _copy(self, job_id: int, device_spec: Any, chunk_ids: Any, store: bool) -> TransferResult:
        began, moved = time.perf_counter(), 0
        for group in groups_of(device_spec, chunk_ids, self._blocks_per_chunk):
            for i in self._tensors[group.number]:
                cache, pool = self._caches[i], self._pool[i]
                if store:
                    pool[group.chunks, group.parts] = cache[group.blocks]
                else:
                    cache[group.blocks] = pool[group.chunks, group.parts]
                moved += len(group.blocks) * cache.shape[1]
        return TransferResult(job_id=job_id, success=True, transfer_size=moved,
                              transfer_time=time.perf_counter() - began)
