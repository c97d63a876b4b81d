"""How "KVBM" gets into AIBrix's list of backends, which is written into Connector.create."""
from __future__ import annotations

import functools
import inspect
from contextvars import ContextVar
from typing import Any, Callable

import aibrix_kvcache
from aibrix_kvcache.l2.connectors import Connector
from aibrix_kvcache.l2.key_builders import RawKeyBuilder
from aibrix_kvcache.l2.l2_cache import L2Cache

from ..engine import ConfigurationError
from ..engine.facts.aibrix import TOKENS
from .connector import KvbmConnector
from .names import TokenKeyBuilder
from .options import Options

BACKEND = "KVBM"
SUPPORTED = ("0.8.0",)

# L2Cache 0.8.0 requests blocks in batches. After a miss at the end of one batch it counts a hit in the next batch as if
# it were in the place of the miss. A single batch avoids that.
_ONE_BATCH = 1 << 30

# The block spec and the key builder of the L2Cache that is being made. AIBrix's connection id leaves out the element type,
# the size of a head, all heads and layers but the first and last, and what keys are hashed with.
_making: ContextVar[dict[str, Any]] = ContextVar("libkvbm_aibrix_making", default={})


def install() -> None:
    """Adds the backend "KVBM" to aibrix-kvcache. Twice is fine; other versions are refused."""
    if getattr(Connector, "_libkvbm_installed", False):
        return
    _check()
    Connector.create = staticmethod(_creating(Connector.create))
    L2Cache.__init__ = _telling(L2Cache.__init__)
    Connector._libkvbm_installed = True


def _check() -> None:
    found = str(getattr(aibrix_kvcache, "__version__", "unknown"))
    if found not in SUPPORTED:
        raise ConfigurationError(f"libkvbm.aibrix was made for aibrix-kvcache {', '.join(SUPPORTED)}, and this is "
                                 f"{found}: pip install aibrix-kvcache=={SUPPORTED[-1]}")
    takes = inspect.signature(L2Cache.__init__).parameters
    if not {"backend_name", "block_spec", "op_batch"} <= set(takes) or not hasattr(Connector, "create"):
        raise ConfigurationError(f"this aibrix-kvcache says that it is {found}, but its L2Cache has another interface: "
                                 f"pip install --force-reinstall aibrix-kvcache=={SUPPORTED[-1]}")


def _creating(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def wrapper(config: Any, **kwargs: Any) -> Any:
        if config.backend_name != BACKEND:
            return create(config, **kwargs)
        conn_id = f"{config.namespace}_{config.partition_id}"
        signatures = f"{config.block_spec_signature}{config.key_builder_signature}{config.layout_signature}"
        return KvbmConnector.from_envs(f"{conn_id}_{signatures}" if signatures else conn_id, config.executor,
                                       **{**_making.get(), **kwargs})

    return wrapper


def _telling(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs).arguments
        if bound.get("backend_name") != BACKEND:
            return init(self, *args, **kwargs)
        token = None
        try:
            bound["key_builder"] = _key_builder(bound.get("key_builder"), bound["block_spec"].block_ntokens)
            token = _making.set({"block_spec": bound["block_spec"], "key_builder": bound["key_builder"]})
            init(**bound)
        except BaseException:
            # L2Cache.__del__ closes the backend, and without one has no name for its last line of log.
            self.__dict__.setdefault("_backend", None)
            raise
        finally:
            if token is not None:
                _making.reset(token)
        self.op_batch = _ONE_BATCH

    return wrapper


def _key_builder(given: Any, block_tokens: int) -> Any:
    """AIBrix's, if its keys are the tokens themselves, or the operator accepts FarmHash; else one that names blocks by
    BLAKE2b of their tokens."""
    options = Options.from_envs()
    builder = RawKeyBuilder(block_tokens) if given is None else given  # as L2Cache has it
    strong = builder.signature in TOKENS or options.configuration.weak_hashes
    return TokenKeyBuilder(block_tokens) if options.tokens or not strong else builder
