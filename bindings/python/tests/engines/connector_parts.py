"""Both halves of KvbmConnector around a small KV cache of ours, driven as an engine in one process drives them."""
from __future__ import annotations

import hashlib
import time
from types import SimpleNamespace as Made
from typing import Any, Callable, Optional, Sequence

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

from libkvbm.vllm.connector import counts, handoff, layout
from libkvbm.vllm.connector.metadata import Heard, StepMetadata
from libkvbm.vllm.connector.options import Options
from libkvbm.vllm.connector.scheduler import SchedulerSide
from libkvbm.vllm.connector.worker import WorkerSide

BLOCKS, TOKENS, HEADS, DIM = 16, 32, 2, 16


def transfer(role: str = "kv_both", policy: str = "recompute", **extra: Any) -> Made:
    return Made(kv_connector_extra_config={"settings": {"host.capacity": "8MiB"}} | extra, kv_role=role,
                kv_load_failure_policy=policy, engine_id=f"engine-{time.monotonic_ns()}")


def config(transfer_config: Made, names: list[str], *, heads: int = HEADS, kernels: str = "CPU_ATTN",
           **parallel: Any) -> Made:
    backend = Made(get_name=lambda: kernels)
    layers = {name: Made(attn_backend=backend, isa="vec") for name in names}
    model = Made(model="a/model", revision="a" * 40, dtype=torch.bfloat16, quantization=None, seed=0,
                 hf_config=Made(to_dict=lambda: {"hidden_size": 64}), get_total_num_kv_heads=lambda: heads)
    sizes: dict[str, Any] = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "world_size": 1,
                             "distributed_executor_backend": None} | parallel
    return Made(kv_transfer_config=transfer_config, model_config=model, load_config=Made(load_format="auto"),
                speculative_config=None, scheduler_config=Made(async_scheduling=False), parallel_config=Made(**sizes),
                cache_config=Made(cache_dtype="auto", prefix_caching_hash_algo="sha256"),
                compilation_config=Made(static_forward_context=layers))


def zeros(shape: Sequence[int]) -> Any:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def cache(specs: list[Any], heads: int = HEADS, zeros: Callable[[Sequence[int]], Any] = zeros
          ) -> tuple[Made, dict[str, Any]]:
    """Groups of two layers each, in one buffer as vLLM has it."""
    groups, tensors = [], {}
    for g, spec in enumerate(specs):
        names = [f"layers.{g}.{i}" for i in range(2)]
        groups.append(Made(layer_names=names, kv_cache_spec=spec))
        buffer = zeros((2, BLOCKS, heads, TOKENS, 2 * DIM))
        tensors.update({name: buffer[i] for i, name in enumerate(names)})
    return Made(num_blocks=BLOCKS, kv_cache_groups=groups, hash_block_size=TOKENS), tensors


def full(heads: int = HEADS) -> Any:
    return FullAttentionSpec(block_size=TOKENS, num_kv_heads=heads, head_size=DIM, dtype=torch.bfloat16)


def window() -> Any:
    return SlidingWindowSpec(block_size=TOKENS, num_kv_heads=HEADS, head_size=DIM, dtype=torch.bfloat16,
                             sliding_window=64)


class Request:
    def __init__(self, name: str, tokens: int, seed: int = 0, params: Optional[dict[str, Any]] = None) -> None:
        self.request_id = name
        self.num_tokens = self.num_prompt_tokens = tokens
        self.num_computed_tokens = 0
        self.kv_transfer_params = params
        self.status = Made(name="FINISHED_LENGTH_CAPPED")
        self.block_hashes = [hashlib.sha256(f"{seed} {i}".encode()).digest() for i in range(tokens // TOKENS)]


class Halves:
    """A scheduler's half and a worker's, as an engine in one process has them."""

    def __init__(self, specs: list[Any], *, distributed_executor_backend: Optional[str] = None,
                 zeros: Callable[[Sequence[int]], Any] = zeros, kernels: str = "CPU_ATTN", **extra: Any) -> None:
        # Computing times of a fake engine are meaningless: loads are weighed only in tests that set a time.
        extra.setdefault("weigh", False)
        self.kv_config, self.tensors = cache(specs, zeros=zeros)
        self.config = config(transfer(**extra), list(self.tensors), kernels=kernels,
                             distributed_executor_backend=distributed_executor_backend)
        options = Options.of(self.config.kv_transfer_config)
        self.worker = WorkerSide(self.config, self.kv_config, options)
        self.worker.register(self.tensors)
        self.scheduler = SchedulerSide(self.config, self.kv_config, options)
        self.scheduler.meet({0: self.worker.facts()})
        self.tables: dict[str, tuple[list[int], ...]] = {}
        self.evicted: list[set[int]] = []
        self.scheduler.bind(Made(get_block_ids=self.tables.__getitem__, evict_blocks=self.evicted.append))

    def step(self, scheduled: dict[str, int] = {}) -> StepMetadata:
        output = Made(total_num_scheduled_tokens=sum(scheduled.values()), num_scheduled_tokens=scheduled,
                      scheduled_new_reqs=[], scheduled_cached_reqs=Made(
                          req_ids=list(scheduled), new_block_ids=[self.tables[name] for name in scheduled],
                          num_computed_tokens=[0] * len(scheduled), resumed_req_ids=set()))
        return self.scheduler.step(output)

    def compute(self, request: Request, table: tuple[list[int], ...]) -> StepMetadata:
        """Fills the request's blocks, and has them stored."""
        self.tables[request.request_id] = table
        self.scheduler.began(request)
        step = self.step({request.request_id: request.num_tokens})
        self.worker.began(step)
        self.worker.before_writes(step)
        for group, blocks in enumerate(table):
            for i, block in enumerate(blocks):
                for layer in range(2):
                    if block:
                        value = torch.randn(HEADS, TOKENS, 2 * DIM, generator=torch.Generator().manual_seed(
                            1000 * group + 10 * i + layer))
                        self.tensors[f"layers.{group}.{layer}"][block] = value.to(torch.bfloat16)
        self.worker.load(step)
        self.worker.store(step)
        return step

    def load(self, request: Request, table: tuple[list[int], ...], n: int, local: int = 0) -> tuple[set[str], set[int]]:
        """Loads n tokens, and returns the received requests and the bad blocks."""
        self.scheduler.allocated(request, Made(get_block_ids=lambda: table), n)
        step = self.step()
        self.worker.before_writes(step)
        self.worker.load(step)
        received: set[str] = set()
        end = time.monotonic() + 20
        while request.request_id not in received and time.monotonic() < end:
            ended = self.worker.results(True)
            received |= ended.received
            self.failed = ended.failed
        bad = self.worker.bad_blocks()
        self.scheduler.heard(Made(invalid_block_ids=bad, failed_recving=self.failed, finished_recving=received,
                                  kv_connector_worker_meta=Heard(self.worker.left())))
        return received, bad

    def close(self) -> None:
        self.scheduler.close()
        self.worker.close()


def drain(halves: Halves) -> None:
    end = time.monotonic() + 20
    while halves.worker._reading and time.monotonic() < end:
        halves.worker.results(True)
    assert not halves.worker._reading


def handoff_side(ranks: int, whole: Optional[dict[str, Any]], zeros: Callable[[Sequence[int]], Any] = zeros,
                 kernels: str = "CPU_ATTN", **extra: Any) -> list[tuple[handoff.Handoff, dict[str, Any]]]:
    made = []
    for rank in range(ranks):
        kv_config, tensors = cache([full(HEADS // ranks)], HEADS // ranks, zeros)
        if whole is not None:
            heads = HEADS // ranks
            for name, tensor in tensors.items():
                tensor.copy_(whole[name][:, rank * heads:(rank + 1) * heads])
        made_config = config(transfer("kv_consumer", cache=False, **extra), list(tensors), kernels=kernels)
        groups = layout.groups_of(made_config, kv_config, tensors)
        described = layout.whole(made_config, "a model", groups, rank, ranks)
        options = Options.of(made_config.kv_transfer_config)
        made.append((handoff.Handoff(options, described, BLOCKS, "engine", rank, ranks, counts.KvbmStats()), tensors))
    return made


def handoff_ended(node: handoff.Handoff) -> handoff.Ended:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        ended = node.poll(10_000_000)
        if ended.sent or ended.received:
            return ended
        time.sleep(0.01)
    raise AssertionError("nothing came")
