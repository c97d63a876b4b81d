"""The real cache controllers of SGLang, with its own host pools, on a machine without a GPU: what talks to storage runs
as in production, and only the copies between device and host memory have no counterpart here."""
from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path

for name in [name for name in os.environ if name.startswith("KVBM_")]:
    del os.environ[name]
sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "bindings" / "python" / "tests" / "engines"))

import pytest  # noqa: E402
import sglang_pools as p  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    from sglang.srt.managers.cache_controller import HiCacheController
    from sglang.srt.mem_cache.utils import get_storage_hash_str
    from sglang.srt.runtime_context import get_parallel

WAIT = 60


class Allocator:
    def __init__(self, device):
        self.device = device

    def get_kvcache(self):
        return self.device


class Engine:
    """A cache controller, and its scheduler's side of storing and prefetching."""

    def __init__(self, layout="page_first", *, mla=False, options=None, model="model", rank=0, ranks=1, pages=None,
                 storage="dynamic"):
        self.device = p.mla_device() if mla else p.mha_device()
        self.host = (p.mla if mla else p.mha)(layout, self.device)
        self.parallel = dict(tp_rank=rank, tp_size=ranks, pp_rank=0, pp_size=1, attn_dcp_size=1, attn_dcp_rank=0)
        self.model = model
        with get_parallel().override(**self.parallel):
            self.controller = HiCacheController(
                Allocator(self.device), self.host, p.PAGE, None, threading.Event(), storage_backend=storage,
                model_name=model, write_policy="write_through", io_backend="direct", prefetch_threshold=p.PAGE,
                storage_backend_extra_config=dict(options or p.extra()))

    @property
    def backend(self):
        return self.controller.storage_backend

    def hashes(self, tokens):
        return get_storage_hash_str(tokens, None, page_size=p.PAGE)

    def store(self, tokens, indices, wait=True):
        """Backs up what is in these slots; returns how many tokens the controller says are stored."""
        self.controller.write_storage(indices, tokens, self.hashes(tokens), [])
        return self.controller.ack_backup_queue.get(timeout=WAIT).completed_tokens if wait else None

    def prefetch(self, request, tokens):
        """Looks up and loads a prompt; returns the tokens that came and their slots."""
        self.controller.prefetch(request, tokens, None, [])
        operation = self.controller.prefetch_hit_queue.get(timeout=WAIT)
        if operation.storage_hit_count == 0:
            return 0, None
        operation.host_indices = self.controller.alloc_prefetch_host_buffers(operation, operation.storage_hit_count)
        assert operation.host_indices is not None, "the test's host pool is too small"
        self.controller.prefetch_buffer.put(operation)
        done = 0
        while True:
            ack = self.controller.ack_prefetch_queue.get(timeout=WAIT)
            if ack.completed_req:
                return done, operation.host_indices
            done = ack.completed_tokens

    def attach(self, options):
        with get_parallel().override(**self.parallel):
            self.controller.attach_storage_backend("dynamic", p.PAGE, self.model, dict(options))

    def page(self, slot):
        return self.host.get_data_page(int(slot)).contiguous().view(torch.uint8)

    def close(self):
        if self.controller.enable_storage:
            self.controller.detach_storage_backend()


@pytest.fixture
def engine():
    made = []

    def make(*arguments, **options):
        made.append(Engine(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
