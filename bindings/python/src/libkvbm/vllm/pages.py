"""The option `identity` of the plug-ins for vLLM, and the identity "pages": one that all of them have alike, so that
what one hook has stored the others find."""
from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Iterator, Mapping, Optional, Sequence

from vllm.platforms import current_platform

from ..engine import Configuration, ConfigurationError, Identity
from ..engine.facts import vllm as facts

_starting: ContextVar[Optional[Any]] = ContextVar("libkvbm_vllm_config", default=None)


def chosen(options: Mapping[str, Any], among: Sequence[str]) -> str:
    """The option `identity`."""
    value = options.get("identity", "engine")
    if value not in among:
        raise ConfigurationError(f"identity is {value!r}: {' or '.join(among)} is expected")
    return str(value)


@contextmanager
def starting(vllm_config: Any) -> Iterator[None]:
    """Lets what is made inside know the engine's configuration: vLLM does not tell it to its offloading."""
    token = _starting.set(vllm_config)
    try:
        yield
    finally:
        _starting.reset(token)


def being_started() -> Optional[Any]:
    """The configuration of the engine that is being started, if it is known."""
    from vllm.config import get_current_vllm_config_or_none

    return _starting.get() or get_current_vllm_config_or_none()


def pages_identity(vllm_config: Any, library: Configuration, layers: Sequence[str], tokens: int, size: int) -> Identity:
    """Of blocks that are the pages of all layers, one after the other, as vLLM on CPUs has them, under vLLM's hashes.
    What it is made of is known to every hook before the first request."""
    from vllm import __version__

    if vllm_config is None:
        raise ConfigurationError("identity pages needs kv_connector KvbmOffloadingConnector with "
                                 "kv_connector_module_path libkvbm.vllm: vLLM's own says too little of the model")
    if not current_platform.is_cpu():
        raise ConfigurationError("identity pages is for vLLM on CPUs, where several hooks can hold the same pages")
    if vllm_config.parallel_config.world_size != 1:
        raise ConfigurationError("identity pages is for one worker: with several, the hooks cut blocks differently")
    cache = vllm_config.cache_config
    return facts.pages(cache, facts.model_name(vllm_config, library.revision), ".".join(__version__.split(".")[:2]),
                       instructions(vllm_config, tokens), layers, tokens, size, facts.pages_hashing(cache, library.weak_hashes))


def instructions(vllm_config: Any, block_tokens: int) -> str:
    """The instruction set by which vLLM's kernels for CPUs order a block: another processor may have another order."""
    from vllm.v1.attention.backends import cpu_attn

    model = vllm_config.model_config
    return str(cpu_attn._get_attn_isa(model.dtype, block_tokens, model.get_head_size(),
                                      vllm_config.cache_config.cache_dtype))
