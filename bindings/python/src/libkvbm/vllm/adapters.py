"""LoRA adapters that change under one name and path. vLLM's hashes of a request's blocks contain the adapter's name and
path. That is enough while one engine runs. Blocks that outlive the engine also need the contents of the adapter."""
from __future__ import annotations

import hashlib
import logging
import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Iterator

from ..engine.aside import ConfigurationError
from ..engine.weights import digest_of, place_of

_log = logging.getLogger("libkvbm")

# As the files were when an adapter was asked for first: that is when vLLM loads them.
_known: dict[tuple[str, int, str], bytes] = {}
_MOST_KNOWN = 1 << 16
_asking: ContextVar[bytes] = ContextVar("libkvbm_vllm_adapter", default=b"")


def adapter_of(request: Any) -> bytes:
    """A digest of the files of a request's adapter; a number of this process if the files are unknown. Empty without an
    adapter."""
    adapter = getattr(request, "lora_request", None)
    if adapter is None:
        return b""
    key = (str(adapter.lora_name), int(adapter.lora_int_id), str(adapter.lora_path))
    found = _known.get(key)
    if found is None or adapter.load_inplace:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = _digest(str(adapter.lora_path))
    return found


def named(name: bytes, adapter: bytes) -> bytes:
    """A block's name in libkvbm, for requests with this adapter."""
    return hashlib.blake2b(name + adapter, digest_size=32).digest() if adapter else name


@contextmanager
def asking(request: Any) -> Iterator[None]:
    """Lets what is called inside know the request's adapter: vLLM does not tell it to its offloading."""
    token = _asking.set(adapter_of(request))
    try:
        yield
    finally:
        _asking.reset(token)


def adapter_here() -> bytes:
    """Of the request that is being asked for."""
    return _asking.get()


def _digest(path: str) -> bytes:
    try:
        place = place_of(path)
        if place is not None:
            return bytes.fromhex(digest_of(place))
        why = "its files are not on this machine"
    except ConfigurationError as error:
        why = str(error)
    # Nothing tells which adapter it is: what this process computes with it no other one finds.
    _log.warning("libkvbm keeps blocks of the adapter %s for this process alone: %s", path, why)
    return os.urandom(32)
