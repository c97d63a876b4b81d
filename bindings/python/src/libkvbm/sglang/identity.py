"""Facts of the SGLang in this process that a page's bytes depend on, besides its tokens."""
from __future__ import annotations

from typing import Any, Optional

import torch

from ..engine.facts import sglang as facts


def server_facts(revision: Optional[str], weak_hashes: bool) -> dict[str, str]:
    """As libkvbm.engine.facts.sglang has it."""
    return facts.server_facts(_arguments(), revision, weak_hashes, _device())


def _arguments() -> Any:
    try:
        from sglang.srt.runtime_context import get_server_args
        return get_server_args()
    except (ImportError, ValueError, AttributeError, RuntimeError):
        return None


def _device() -> str:
    """Facts by which SGLang chooses kernels, and so the order of quantized pages."""
    if not torch.cuda.is_available():
        return "no GPU"
    return f"capability {torch.cuda.get_device_capability()}{' HIP' if torch.version.hip else ''}"
