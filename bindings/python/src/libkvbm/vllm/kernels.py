"""Which kernels a layer's attention is computed with: they order the bytes of a block as suits them."""
from __future__ import annotations

from typing import Any, Optional


def kernels_of(vllm_config: Any, layer: str) -> Optional[str]:
    """The name of vLLM's attention backend, and for CPUs the instruction set, by which its kernels order a block; None
    where that is not known. Equal texts and equal views of the memory are equal orders."""
    module = vllm_config.compilation_config.static_forward_context.get(layer)
    backend = getattr(module, "attn_backend", None)
    isa = getattr(module, "isa", None)
    name = None if backend is None else str(backend.get_name())
    if name is None or (name == "CPU_ATTN" and isa is None):
        return None
    return f"{name}/{isa or ''}"
