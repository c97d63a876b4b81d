"""SGLang's own prefix cache with its hierarchical cache on libkvbm: a prompt's KV goes from the device pool down to
libkvbm, and after the tree and the device have forgotten it, comes back to the device byte for byte.

The kernels that copy between device and host memory need a GPU; here they are indexing of tensors."""
from __future__ import annotations

import json
import time
from array import array
from types import SimpleNamespace

import conftest
import pytest
import sglang_pools as p
from sglang_pools import torch
from sglang.srt.mem_cache import pool_host
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import (CacheRequestHandle, InitLoadBackParams, InsertParams,
                                                    MatchPrefixParams)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import get_context, get_parallel

from libkvbm.sglang import KvbmStorage

TOKENS = list(range(4 * p.PAGE))


def down(self, device_pool, host_indices, device_indices, io_backend):
    for layer in range(self.layer_num):
        self.k_buffer[host_indices, layer] = device_pool.k_buffer[layer][device_indices]
        self.v_buffer[host_indices, layer] = device_pool.v_buffer[layer][device_indices]


def up(self, device_pool, host_indices, device_indices, layer, io_backend, *, is_draft=False):
    device_pool.k_buffer[layer][device_indices] = self.k_buffer[host_indices, layer]
    device_pool.v_buffer[layer][device_indices] = self.v_buffer[host_indices, layer]


@pytest.fixture
def scheduler(monkeypatch, tmp_path):
    monkeypatch.setattr(MHATokenToKVPoolHost, "backup_from_device_all_layer", down)
    monkeypatch.setattr(MHATokenToKVPoolHost, "load_to_device_per_layer", up)
    monkeypatch.setattr(pool_host.common, "_cuda_host_register", lambda *_: None)
    options = p.extra(prefetch_threshold=p.PAGE, disk=str(tmp_path / "disk"), disk_capacity="64MiB")
    published = get_context().override_server_args(
        enable_hierarchical_cache=True, hicache_storage_backend="dynamic", hicache_mem_layout="page_first",
        hicache_storage_backend_extra_config=json.dumps(options), hicache_io_backend="kernel", hicache_ratio=2.0,
        hicache_size=0, hicache_write_policy="write_through", hicache_storage_prefetch_policy="wait_complete",
        page_size=p.PAGE, device="cpu", served_model_name="radix")
    arguments = published.install()
    get_parallel().override_permanently(tp_rank=0, pp_rank=0, attn_dcp_rank=0)
    one = Scheduler(arguments)
    yield one
    one.cache.shutdown()
    get_parallel().clear_stamp()
    published.restore()


class Scheduler:
    def __init__(self, arguments):
        self.device = p.mha_device()
        self.allocator = PagedTokenToKVPoolAllocator(p.PAGE * p.PAGES, p.PAGE, torch.bfloat16, "cpu", self.device,
                                                     False)
        parameters = CacheInitParams(
            disable=False, req_to_token_pool=ReqToTokenPool(4, 256, "cpu", False), page_size=p.PAGE,
            token_to_kv_pool_allocator=self.allocator, tree_components=(ComponentType.FULL,))
        self.cache = UnifiedRadixCache(parameters)
        with p.host_memory_budget_scope(1 << 30):
            self.cache.init_hicache(arguments, parameters)
        self.backend = self.cache.cache_controller.storage_backend

    @property
    def buffers(self):
        return self.device.k_buffer + self.device.v_buffer

    def compute(self, tokens):
        """Slots with KV as if it had been computed, in the tree; and a copy of it."""
        slots = self.allocator.alloc(len(tokens))
        for buffer in self.buffers:
            buffer.copy_(torch.randn(buffer.shape))
        self.cache.insert(InsertParams(key=self.key(tokens), value=slots))
        self.cache.flush_pending_backups()
        return [buffer[slots].clone() for buffer in self.buffers]

    def until(self, reached):
        deadline = time.monotonic() + conftest.WAIT
        while not reached():
            assert time.monotonic() < deadline
            self.cache.check_hicache_events()
            time.sleep(0.01)

    def forget(self):
        self.cache.reset()
        self.allocator.clear()
        for buffer in self.buffers:
            buffer.zero_()

    def key(self, tokens):
        return RadixKey(array("q", tokens))

    def match(self, tokens):
        return self.cache.match_prefix(MatchPrefixParams(key=self.key(tokens)))

    def prefetch(self, name, tokens):
        """Tokens that came from storage."""
        request = CacheRequestHandle(name, 0)
        self.cache.prefetch_from_storage(request, self.match(tokens).last_host_node, array("q", tokens), None, None)
        self.until(lambda: self.cache.check_prefetch_progress(request))
        return self.cache.pop_prefetch_loaded_tokens(request)

    def load_back(self, tokens):
        """Slots of the device pool with what the host has of these tokens."""
        match = self.match(tokens)
        request = SimpleNamespace(rid="load", last_node=match.last_device_node, swa_host_hit_length=0,
                                  mamba_host_hit_length=0, kv=SimpleNamespace(mamba_pool_idx=None))
        loaded = self.cache.init_load_back(InitLoadBackParams(
            best_match_node=match.best_match_node, host_hit_length=match.host_hit_length, req=request))
        assert loaded is not None and loaded[0] == match.host_hit_length
        self.cache.ready_to_load_host_cache()
        self.cache.check_hicache_events()
        slots = self.cache.tree_core.collect_full_device_indices(match.best_match_node, match.last_device_node)
        return slots


def test_a_prompt_comes_back_to_the_device_after_everything_above_was_forgotten(scheduler):
    assert isinstance(scheduler.backend, KvbmStorage)
    assert scheduler.prefetch("cold", TOKENS) == 0
    computed = scheduler.compute(TOKENS)
    scheduler.until(lambda: scheduler.backend.get_stats().kvbm.tiers[0].stores == 4)
    scheduler.forget()
    assert scheduler.match(TOKENS).host_hit_length == 0
    longer = TOKENS + [7] * p.PAGE
    assert scheduler.prefetch("again", longer) == len(TOKENS)
    assert scheduler.match(longer).host_hit_length == len(TOKENS)
    slots = scheduler.load_back(longer)
    assert len(slots) == len(TOKENS)
    assert all(torch.equal(buffer[slots], was) for buffer, was in zip(scheduler.buffers, computed))


def test_the_backend_is_detached_cleared_and_attached_while_the_server_runs(scheduler):
    scheduler.compute(TOKENS)
    scheduler.until(lambda: scheduler.backend.get_stats().kvbm.tiers[0].stores == 4)
    scheduler.until(lambda: scheduler.cache.cache_controller.backup_queue.empty())
    options = json.dumps({**scheduler.cache.cache_controller.storage_config.extra_config,
                          "prefetch_threshold": p.PAGE})
    assert scheduler.cache.detach_storage_backend()[0]
    assert scheduler.cache.attach_storage_backend("dynamic", options, "radix")[0]
    scheduler.forget()
    assert scheduler.prefetch("disk", TOKENS) == len(TOKENS)
    assert scheduler.cache.clear_storage_backend()
    scheduler.forget()
    assert scheduler.prefetch("cleared", TOKENS) == 0
    assert scheduler.cache.detach_storage_backend()[0]
    ok, message = scheduler.cache.attach_storage_backend("dynamic", json.dumps(p.extra(disc="x")), "radix")
    assert not ok and "there is no option 'disc'" in message
