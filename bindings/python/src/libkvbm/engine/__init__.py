"""What the plug-ins of all inference engines have in common: how their configuration becomes a manager, how their
model becomes a namespace, and how a plug-in steps aside so that the engine keeps serving.

Nothing here imports an engine; `libkvbm.vllm`, `libkvbm.sglang`, `libkvbm.lmcache` and `libkvbm.aibrix` do.
"""
from __future__ import annotations

from .aside import Aside, ConfigurationError
from .configuration import Configuration
from .identity import Identity
from .prefill import MissedSpeed, PrefillSpeed, Speed

__all__ = ["Aside", "Configuration", "ConfigurationError", "Identity", "MissedSpeed", "PrefillSpeed",
           "Speed"]
