"""What KV blocks of a vLLM depend on beside their tokens, out of its configuration."""
from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Optional

from vllm import __version__
from vllm.platforms import current_platform

from ..engine import ConfigurationError, Identity
from .model import model_name
from .pages import being_started, instructions


@dataclass(frozen=True)
class Running:
    """What an OffloadingConfig does not say of the engine that it is of: the model, with its revision, weights and what
    of its configuration was overridden, and what orders the bytes of a block."""

    model: str
    kernels: str

    @classmethod
    def here(cls, block_tokens: int) -> Running:
        """Of the engine that is being started."""
        engine = being_started()
        if engine is None:
            raise ConfigurationError("libkvbm needs kv_connector KvbmOffloadingConnector with kv_connector_module_path "
                                     "libkvbm.vllm: vLLM's own connector does not say which revision of a model it runs, "
                                     "what of its configuration is overridden, and how its kernels order a block")
        if current_platform.is_cpu():
            kernels = instructions(engine, block_tokens)
        else:
            # What vLLM chooses by itself depends on the device; the scheduler's process cannot see what it has chosen.
            kernels = str(getattr(getattr(engine, "attention_config", None), "backend", None)
                          or f"chosen for {current_platform.get_device_capability()}")
        return cls(model_name(engine), f"vllm {'.'.join(__version__.split('.')[:2])} {kernels}")


def hashing() -> str:
    """vLLM's hash of nothing: it differs with the algorithm of its block hashes and with their seed, so that equal
    hashes are equal tokens. vLLM makes it after its connectors, so this is asked for with the first request."""
    from vllm.v1.core import kv_cache_utils

    start = getattr(kv_cache_utils, "NONE_HASH", None)
    if start is None:
        raise RuntimeError("vLLM has not chosen how it hashes blocks yet")
    return f"vllm:{bytes(start).hex()}"


def identity_of(config: Any, running: Running, layout: str, record_bytes: int, group: Optional[int] = None) -> Identity:
    """The identity of an OffloadingConfig's blocks. `layout` says in words how the bytes of a record are ordered;
    `group` is the group of layers that they are of, None where a record has room for all."""
    parallel = config.parallel
    groups = [g for g in config.groups if group is None or g.group_id == group]
    facts = {"layout": layout, "kernels": running.kernels, "order": config.kv_cache_layout, "canonical": config.canonical_layout,
             "blocks": config.cache.blocks_per_chunk,
             "groups": [[g.group_id, g.tokens_per_block, _names(g.layer_names)] for g in groups],
             "tp": parallel.tp_size, "pp": parallel.pp_size, "pcp": parallel.pcp_size, "dcp": parallel.dcp_size}
    return Identity(model=running.model, element=config.model.dtype,
                    layout="vllm " + json.dumps(facts, sort_keys=True, separators=(",", ":")),
                    tokens=groups[0].tokens_per_block * config.cache.blocks_per_chunk, bytes=record_bytes,
                    ranks=parallel.world_size, hashing=hashing())


def _names(layers: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(layers).encode()).hexdigest()[:16]
