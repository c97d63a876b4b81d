"""What KV blocks of a vLLM depend on beside their tokens, out of its configuration."""
from __future__ import annotations

import hashlib
import json
from typing import Any, Optional

from ..engine import Identity
from .pages import being_started


def revision() -> Optional[str]:
    """The revision that the engine which is being started was told, if it was."""
    config = being_started()
    return None if config is None else getattr(config.model_config, "revision", None)


def hashing() -> str:
    """vLLM's hash of nothing: it differs with the algorithm of its block hashes and with their seed, so that equal
    hashes are equal tokens. vLLM makes it after its connectors, so this is asked for with the first request."""
    from vllm.v1.core import kv_cache_utils

    start = getattr(kv_cache_utils, "NONE_HASH", None)
    if start is None:
        raise RuntimeError("vLLM has not chosen how it hashes blocks yet")
    return f"vllm:{bytes(start).hex()}"


def identity_of(config: Any, weights: str, layout: str, record_bytes: int, group: Optional[int] = None) -> Identity:
    """The identity of an OffloadingConfig's blocks. `layout` says in words how the bytes of a record are ordered;
    `group` is the group of layers that they are of, None where a record has room for all."""
    parallel = config.parallel
    groups = [g for g in config.groups if group is None or g.group_id == group]
    facts = {"layout": layout, "order": config.kv_cache_layout, "canonical": config.canonical_layout,
             "blocks": config.cache.blocks_per_chunk,
             "groups": [[g.group_id, g.tokens_per_block, _names(g.layer_names)] for g in groups],
             "tp": parallel.tp_size, "pp": parallel.pp_size, "pcp": parallel.pcp_size, "dcp": parallel.dcp_size}
    return Identity(model=weights, element=config.model.dtype,
                    layout="vllm " + json.dumps(facts, sort_keys=True, separators=(",", ":")),
                    tokens=groups[0].tokens_per_block * config.cache.blocks_per_chunk, bytes=record_bytes,
                    ranks=parallel.world_size, hashing=hashing())


def _names(layers: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(layers).encode()).hexdigest()[:16]
