"""Leave to use AMX tiles, which Linux gives a process when it asks.

vLLM 0.32 uses them for attention on processors that have them and does not ask: it relies on a matrix product of some
rows that another library does with them before. A process whose first prompt is in the cache but for a token computes
no such product, and would end with an illegal instruction.
"""
from __future__ import annotations

import torch


def ask_for_tiles() -> None:
    """Does nothing where the processor has no tiles, or torch cannot ask."""
    ask = getattr(torch.cpu, "_init_amx", None)
    has = getattr(torch.cpu, "_is_amx_tile_supported", None)
    if ask is not None and has is not None and has():
        ask()
