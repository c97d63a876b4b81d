"""Facts of the vLLM in this process that its KV blocks depend on, besides their tokens."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from vllm import __version__
from vllm.platforms import current_platform

from ..engine import Configuration, ConfigurationError, Identity
from ..engine.facts import vllm as facts
from .pages import being_started, instructions


@dataclass(frozen=True)
class Running:
    """Facts of the engine that an OffloadingConfig does not contain: the model with its revision, weights and
    overridden configuration, and the kernels that order the bytes of a block. `unfit`: the reason why its blocks are
    valid only in this process."""

    model: str
    kernels: str
    engine: Any
    unfit: Optional[str]

    @classmethod
    def here(cls, block_tokens: int, library: Configuration) -> Running:
        """Of the engine that is being started."""
        engine = being_started()
        if engine is None:
            raise ConfigurationError("libkvbm needs kv_connector KvbmOffloadingConnector with kv_connector_module_path "
                                     "libkvbm.vllm: vLLM's own connector does not say which revision of a model it runs, "
                                     "what of its configuration is overridden, and how its kernels order a block")
        if current_platform.is_cpu():
            kernels = instructions(engine, block_tokens)
        else:
            # vLLM's own choice depends on the device; the scheduler's process cannot see it.
            kernels = str(getattr(getattr(engine, "attention_config", None), "backend", None)
                          or f"chosen for {current_platform.get_device_capability()}")
        facts.hashing(engine.cache_config, library.weak_hashes)  # refused at start, not with the first request
        return cls(facts.model_name(engine, library.revision), f"vllm {'.'.join(__version__.split('.')[:2])} {kernels}", engine,
                   facts.run_time_scales(engine))


def hashing(running: Running, weak_hashes: bool) -> str:
    """vLLM's hash of nothing differs with the algorithm of its block hashes and with their seed, so that equal hashes are
    equal tokens. vLLM makes it after its connectors, so this is asked for with the first request."""
    from vllm.v1.core import kv_cache_utils

    start = getattr(kv_cache_utils, "NONE_HASH", None)
    if start is None:
        raise RuntimeError("vLLM has not chosen how it hashes blocks yet")
    # Other code in this process may have made vLLM hash with a function that gives numbers.
    seed = start.hex() if isinstance(start, bytes) else f"{type(start).__name__} {start}"
    return facts.hashing(running.engine.cache_config, weak_hashes, seed)


def identity_of(config: Any, running: Running, layout: str, record_bytes: int, weak_hashes: bool,
                group: Optional[int] = None) -> Identity:
    """The identity of an OffloadingConfig's blocks (libkvbm.engine.facts.vllm.offloaded)."""
    return facts.offloaded(config, running.model, running.kernels, layout, record_bytes, hashing(running, weak_hashes), group)
