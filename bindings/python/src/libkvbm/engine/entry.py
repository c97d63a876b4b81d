"""Entry points that vLLM calls in each of its processes at start (`vllm.general_plugins`)."""
from __future__ import annotations

import os


def aibrix() -> None:
    """Adds the backend KVBM to AIBrix where it is the one that is asked for, and touches nothing else."""
    if os.environ.get("AIBRIX_KV_CACHE_OL_L2_CACHE_BACKEND", "").strip().upper() == "KVBM":
        from ..aibrix import install

        install()
