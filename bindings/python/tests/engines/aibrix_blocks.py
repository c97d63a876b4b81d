"""Common parts of the tests of libkvbm.aibrix: a connector on AIBrix's own classes, and regions in slabs."""
from __future__ import annotations

import asyncio
from typing import Any, Coroutine, Optional

import torch
from aibrix_kvcache.l2.key_builders import RawKeyBuilder
from aibrix_kvcache.memory import MemoryRegion
from aibrix_kvcache.spec import KVCacheBlockLayout, KVCacheBlockSpec, KVCacheTensorSpec

from libkvbm.aibrix import KvbmConnector, Options

BLOCK = 4096


class PlainRegion(MemoryRegion):  # type: ignore[misc]
    """A region that records its end."""

    destroyed = False

    def destroy_unsafe(self) -> None:
        self.destroyed = True


def spec(*, dtype: Any = torch.bfloat16, layout: str = "LCND", heads: Any = (0, 1), layers: Any = (0, 1), dim: int = 16,
         tokens: int = 16) -> Any:
    return KVCacheBlockSpec(tokens, dtype, KVCacheBlockLayout[layout], KVCacheTensorSpec([*heads], [*layers], dim))


def connector(conn_id: str = "aibrix_h0_1_l0_1_lcnd16rawc", block_spec: Optional[Any] = None, **given: str) -> Any:
    options = {"MODEL": "m@1", "HOST_CAPACITY": "1MiB", "WEIGH": "0", **given}
    made = KvbmConnector(conn_id, Options.from_envs({f"AIBRIX_KV_CACHE_OL_KVBM_{k}": v for k, v in options.items()}),
                         block_spec or spec(), RawKeyBuilder(16))
    return made


def slab(n_blocks: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n_blocks * BLOCK,), dtype=torch.uint8, generator=generator)


def regions(tensor: torch.Tensor, blocks: Any) -> list[PlainRegion]:
    return [PlainRegion(tensor, i * BLOCK, BLOCK) for i in blocks]


def keys(n: int, first: int = 0) -> list[bytes]:
    return [b"key %d" % i for i in range(first, first + n)]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def codes(statuses: Any) -> str:
    """One letter for each status, as OONN."""
    return "".join(status.error_code.name[0] for status in statuses)
