"""AIBrix's real KVCacheManager in this process, and blocks with bytes that identify them."""
from __future__ import annotations

import hashlib
import os
import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator, Optional

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aibrix_kvcache
    import torch
    from aibrix_kvcache import cache_manager
    from aibrix_kvcache.spec import KVCacheBlockLayout, KVCacheBlockSpec, KVCacheTensorSpec, ModelSpec

import libkvbm.aibrix

TOKENS = 16  # of a block
cache_manager.TESTING_DISABLE_PIN_MEMORY = True  # AIBrix's own switch for machines without a GPU
libkvbm.aibrix.install()


@dataclass
class Serving:
    """A manager, and what its blocks should hold."""

    manager: Any
    seed: str = "weights"

    def tokens(self, n_blocks: int, prompt: int = 0) -> Any:
        return aibrix_kvcache.TokenListView([prompt * 100_000 + i for i in range(n_blocks * TOKENS)])

    def expected(self, block: int, prompt: int, size: int) -> bytes:
        """Returns the bytes that stand for a computed block of a prompt: different for each block."""
        return hashlib.shake_128(f"{self.seed} {prompt} {block}".encode()).digest(size)

    def put(self, n_blocks: int, prompt: int = 0, first: int = 0) -> Any:
        """Stores blocks [first, n_blocks)."""
        tokens = self.tokens(n_blocks, prompt)
        prefix, query = (tokens[:first * TOKENS] if first else None), tokens[first * TOKENS:]
        handle = self.manager.allocate_for(prefix, query).get()
        for i, tensor in enumerate(handle.to_tensors()):
            data = self.expected(first + i, prompt, tensor.nbytes)
            tensor.view(torch.uint8).flatten().copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        return self.manager.put(prefix, query, handle)

    def get(self, n_blocks: int, prompt: int = 0) -> tuple[str, int]:
        """(status, how many leading blocks came). Raises if a byte of one that is said to have come is wrong."""
        status = self.manager.acquire(None, self.tokens(n_blocks, prompt))
        if not status.is_ok():
            return status.error_code.name, 0
        n_tokens, handle = status.get()
        for i, tensor in enumerate(handle.to_tensors()):
            found = tensor.view(torch.uint8).flatten().numpy().tobytes()
            if found != self.expected(i, prompt, tensor.nbytes):
                raise AssertionError(f"WRONG BYTES in block {i} of prompt {prompt}")
        assert n_tokens == len(handle) * TOKENS
        handle.release()
        return "OK", len(handle)

    def wipe_l1(self, n_blocks: int, prompt: int = 0) -> None:
        self.manager._l1_cache.delete(None, self.tokens(n_blocks, prompt))

    @property
    def backend(self) -> Any:
        return self.manager._l2_cache._backend

    @property
    def kvbm(self) -> Any:
        return self.backend.manager

    def keys(self, n_blocks: int, prompt: int = 0) -> list[bytes]:
        return [key for _, key in self.manager._l2_cache._cache_block_keys(None, self.tokens(n_blocks, prompt))]

    def call(self, work: Any) -> Any:
        """A coroutine on AIBrix's own loop."""
        import asyncio
        return asyncio.run_coroutine_threadsafe(work, self.manager._event_loop).result(60)


@contextmanager
def environment(**given: object) -> Iterator[None]:
    """AIBRIX_KV_CACHE_OL_<name>; AIBrix reads them when a manager is made."""
    wanted = {"L2_CACHE_BACKEND": "KVBM", "KVBM_MODEL": "llama@1", "KVBM_HOST_CAPACITY": "64MiB", "KVBM_WEIGH": "0",
              "L1_CACHE_ENABLED": 0, "L1_CACHE_CAPACITY_GB": 0.01, "L2_CACHE_PER_TOKEN_TIMEOUT_MS": 200, **given}
    before = dict(os.environ)
    os.environ.update({f"AIBRIX_KV_CACHE_OL_{name}": str(value) for name, value in wanted.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def block_spec(dtype: str = "bfloat16", layout: str = "LCND", heads: Any = (0, 1), layers: Any = (0, 1, 2, 3),
               dim: int = 32) -> Any:
    return KVCacheBlockSpec(TOKENS, getattr(torch, dtype), KVCacheBlockLayout[layout],
                            KVCacheTensorSpec([*heads], [*layers], dim))


@contextmanager
def serving(spec: Optional[Any] = None, seed: str = "weights", group: Any = None, **given: object) -> Iterator[Serving]:
    """A manager with such an environment, and closed at the end."""
    # Progress bars of AIBrix's allocator are no result.
    quiet, sys.stderr = sys.stderr, open(os.devnull, "w")
    try:
        with environment(**given):
            config = aibrix_kvcache.KVCacheConfig(spec or block_spec(), ModelSpec(4096, 1024), multi_threaded=True)
            manager = (aibrix_kvcache.BaseKVCacheManager(config) if group is None
                       else aibrix_kvcache.GroupAwareKVCacheManager(config, group))
    finally:
        sys.stderr.close()
        sys.stderr = quiet
    try:
        yield Serving(manager, seed)
    finally:
        if manager.__dict__.get("_l2_cache") is not None:
            manager.close()
