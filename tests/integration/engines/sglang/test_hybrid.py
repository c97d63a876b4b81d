"""SGLang's controller for models with KV in several pools: latents, index keys that follow them, and a recurrent state
of the last page."""
from __future__ import annotations

import threading
from types import SimpleNamespace

import conftest
import pytest
import sglang_pools as p
from sglang_pools import torch
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
from sglang.srt.mem_cache.pool_host import HostPoolGroup, PoolEntry
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.runtime_context import get_parallel

PAGES = 5


@pytest.fixture
def engine():
    anchor, index = p.dsa("page_first")
    state = p.mamba()
    one = Hybrid(anchor, index, state)
    yield one
    one.controller.detach_storage_backend()


class Hybrid:
    def __init__(self, anchor, index, state):
        self.anchor, self.index, self.state = anchor, index, state
        device = index.device_pool
        group = HostPoolGroup([
            PoolEntry(PoolName.KV, anchor, device, lambda layer: layer, is_primary_index_anchor=True),
            PoolEntry(PoolName.INDEXER, index, device, lambda layer: layer),
            PoolEntry(PoolName.MAMBA, state, device, lambda layer: layer)])
        parallel = dict(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_dcp_size=1, attn_dcp_rank=0)
        with get_parallel().override(**parallel):
            self.controller = HybridCacheController(
                conftest.Allocator(device), group, anchor.page_size, None, threading.Event(), storage_backend="dynamic",
                model_name="hybrid", write_policy="write_through", io_backend="direct", prefetch_threshold=1,
                storage_backend_extra_config=p.extra())
        self.tokens = list(range(PAGES * anchor.page_size))
        self.hashes = get_storage_hash_str(self.tokens, None, page_size=anchor.page_size)

    def side(self, keys, slots):
        return [PoolTransfer(name=PoolName.INDEXER, indices_from_pool=PoolName.KV),
                PoolTransfer(name=PoolName.MAMBA, keys=keys, host_indices=slots,
                             hit_policy=PoolHitPolicy.TRAILING_PAGES)]

    def store(self, slots, pages, state):
        """The first `pages` pages, with the state at their end in this slot."""
        n = pages * self.anchor.page_size
        self.controller.write_storage(slots[:n], self.tokens[:n], self.hashes[:pages], [],
                                      self.side([self.hashes[pages - 1]], state))
        return self.controller.ack_backup_queue.get(timeout=conftest.WAIT)

    def prefetch(self, state):
        self.controller.prefetch(SimpleNamespace(rid="r"), self.tokens, None, [],
                                 extra_pools=self.side([self.hashes[-1]], state))
        operation = self.controller.prefetch_hit_queue.get(timeout=conftest.WAIT)
        pages, done, pools = operation.storage_hit_count // self.anchor.page_size, 0, {}
        if pages == 0:
            return 0, 0, {}, None
        operation.host_indices = self.anchor.alloc(operation.storage_hit_count)
        for transfer in operation.pool_transfers:
            if transfer.indices_from_pool == PoolName.KV:
                transfer.host_indices = operation.host_indices
        self.controller.prefetch_buffer.put(operation)
        while True:
            ack = self.controller.ack_prefetch_queue.get(timeout=conftest.WAIT)
            done = ack.completed_tokens if ack.completed_tokens is not None else done
            pools = ack.pool_hits if ack.pool_hits is not None else pools
            if ack.completed_req:
                return pages, done // self.anchor.page_size, pools, operation.host_indices


def flat(pool, slot):
    return pool.get_data_page(int(slot)).contiguous().view(torch.uint8).reshape(-1)


def test_all_pools_of_a_prefix_come_back_together(engine):
    slots, state = engine.anchor.alloc(len(engine.tokens)), engine.state.alloc(1)
    for pool in (engine.anchor, engine.index, engine.state):
        p.scramble(pool)
    size = engine.anchor.page_size
    latents = [flat(engine.anchor, slot).clone() for slot in slots[::size]]
    indexes = [flat(engine.index, slot).clone() for slot in slots[::size]]
    states = flat(engine.state, state[0]).clone()
    done = engine.store(slots, PAGES, state)
    assert done.completed_tokens == len(engine.tokens)
    engine.anchor.free(slots)
    for pool in (engine.anchor, engine.index, engine.state):
        p.wipe(pool)
    other = engine.state.alloc(1)
    pages, loaded, pools, where = engine.prefetch(other)
    assert pages == loaded == PAGES and pools["mamba"] == 1
    for i, slot in enumerate(where[::size]):
        assert torch.equal(flat(engine.anchor, slot), latents[i])
        assert torch.equal(flat(engine.index, slot), indexes[i])
    assert torch.equal(flat(engine.state, other[0]), states)


def test_a_prefix_ends_where_a_state_was_kept(engine):
    slots = engine.anchor.alloc(len(engine.tokens))
    state = engine.state.alloc(2)
    for pool in (engine.anchor, engine.index, engine.state):
        p.scramble(pool)
    engine.store(slots, 3, state[:1])
    # Two more pages, without a state at their end.
    engine.controller.write_storage(slots, engine.tokens, engine.hashes, [],
                                    [PoolTransfer(name=PoolName.INDEXER, indices_from_pool=PoolName.KV)])
    assert engine.controller.ack_backup_queue.get(timeout=conftest.WAIT).completed_tokens == len(engine.tokens)
    pages, loaded, pools, _ = engine.prefetch(state[1:])
    assert pages == loaded == 3 and pools["mamba"] == 1


def test_without_the_index_keys_there_is_no_hit(engine):
    slots, state = engine.anchor.alloc(len(engine.tokens)), engine.state.alloc(1)
    engine.controller.write_storage(slots, engine.tokens, engine.hashes, [], None)
    engine.controller.ack_backup_queue.get(timeout=conftest.WAIT)
    assert engine.controller.storage_backend.batch_exists(engine.hashes) == PAGES
    assert engine.prefetch(state)[0] == 0
