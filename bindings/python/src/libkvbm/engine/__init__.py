"""Common parts of the plug-ins of all inference engines: a manager from their configuration, a namespace from their
model, and a circuit breaker, so that the engine keeps serving if libkvbm fails.

Nothing here imports an engine; `libkvbm.vllm`, `libkvbm.sglang`, `libkvbm.lmcache` and `libkvbm.aibrix` do.
"""
from __future__ import annotations

from .aside import Aside, ConfigurationError
from .configuration import Configuration
from .identity import Identity
from .prefill import MissedSpeed, PrefillSpeed, Speed

__all__ = ["Aside", "Configuration", "ConfigurationError", "Identity", "MissedSpeed", "PrefillSpeed",
           "Speed"]
