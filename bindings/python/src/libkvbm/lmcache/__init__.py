"""libkvbm under LMCache: what LMCache keeps beyond its own CPU memory lies in libkvbm's tiers.

Three plug-ins, for the three places where LMCache takes one (docs/engines/lmcache.md has whole configurations):

    KvbmL2Adapter       --l2-adapter {"type": "plugin", ...} of LMCache's multi-process server; take this one
    KvbmClient          --l2-adapter {"type": "native_plugin", ...}: the same store behind LMCache's native clients
    KvbmStorageBackend  storage_plugins of LMCache inside the engine's process

Each is imported when it is asked for, since LMCache's modules for one need not be there for another.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    from lmcache import __version__ as _found
except ImportError as _error:
    raise ImportError("libkvbm.lmcache needs LMCache: pip install lmcache==0.5.6") from _error

if TYPE_CHECKING:
    from .adapter import KvbmL2Adapter
    from .backend import KvbmStorageBackend
    from .client import KvbmClient

SUPPORTED = "0.5.6"
FOUND: str = str(_found)

_WHERE = {"KvbmL2Adapter": "adapter", "KvbmClient": "client", "KvbmStorageBackend": "backend"}

__all__ = ["FOUND", "SUPPORTED", "KvbmClient", "KvbmL2Adapter", "KvbmStorageBackend"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
