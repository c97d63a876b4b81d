"""Fields of events, the engines' shortened hashes of blocks, and their names of mediums."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence, Union

Hash = Union[int, bytes]
Token = Union[int, tuple[int, int]]
"""Engines with bigram keys (EAGLE in SGLang) name pairs."""

VLLM_MEDIUMS: Mapping[int, str] = {0: "CPU", 1: "STORAGE", 2: "STORAGE", 3: "STORAGE"}
"""Names of kvbm's tiers for vLLM's consumers: host memory, and all below it."""
SGLANG_MEDIUMS: Mapping[int, str] = {0: "CPU_PINNED", 1: "DISK", 2: "EXTERNAL", 3: "EXTERNAL"}
"""Names of kvbm's tiers for SGLang's consumers."""
GPU = "GPU"
"""The medium of an event that names none."""


@dataclass(slots=True)
class BlockStored:
    """Blocks were stored in a medium. Several hashes are consecutive blocks: each is the next one's parent.

    Fields of vLLM: extra_keys (one entry per block) has the other inputs of the hash besides tokens. group_idx is the
    cache group of hybrid models. kv_cache_spec_kind and kv_cache_spec_sliding_window decide which of its blocks a hit
    needs (groups.py). block_size is that of the group, 0 if unknown. ownership names a secondary tier. cache_salt is
    SGLang's, lookahead_token_ids vLLM's from 0.33 on."""

    block_hashes: list[Hash]
    parent_block_hash: Optional[Hash] = None
    token_ids: list[Token] = field(default_factory=list)
    block_size: int = 0
    lora_id: Optional[int] = None
    medium: Optional[str] = None
    lora_name: Optional[str] = None
    extra_keys: Optional[Sequence[Optional[Sequence[Any]]]] = None
    group_idx: Optional[int] = None
    kv_cache_spec_kind: Optional[str] = None
    kv_cache_spec_sliding_window: Optional[int] = None
    locality: Optional[str] = None
    ownership: Optional[str] = None
    session_id: Optional[str] = None
    lookahead_token_ids: Optional[list[int]] = None
    cache_salt: Optional[str] = None


@dataclass(slots=True)
class BlockRemoved:
    """Blocks left a medium: of the group, with whatever block size and adapter they were stored."""

    block_hashes: list[Hash]
    medium: Optional[str] = None
    group_idx: Optional[int] = None
    locality: Optional[str] = None
    ownership: Optional[str] = None


@dataclass(slots=True)
class AllBlocksCleared:
    """Nothing of this publisher is anywhere any more."""


Event = Union[BlockStored, BlockRemoved, AllBlocksCleared]


@dataclass(slots=True)
class Batch:
    """Events of one message, in order."""

    ts: float
    events: list[Event]
    rank: Optional[int] = None
    """Data-parallel rank: data_parallel_rank of vLLM, attn_dp_rank of SGLang."""


def vllm_hash(digest: bytes) -> int:
    """vLLM's number for a block: the last 8 bytes of its hash, unsigned. The group suffix of an offload key is no
    part of the hash."""
    return int.from_bytes(digest[-8:], "big")


def sglang_hash(digest: Union[bytes, str]) -> int:
    """SGLang's number for a page: the first 8 bytes of its hash (16 digits of its text), signed."""
    first = bytes.fromhex(digest[:16]) if isinstance(digest, str) else digest[:8]
    return int.from_bytes(first, "big", signed=True)
