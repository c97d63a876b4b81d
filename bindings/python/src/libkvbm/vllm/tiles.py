"""Requests the permission to use AMX tiles from Linux.

vLLM 0.32 uses them for attention on processors that have them, without requesting them: it relies on an earlier matrix
product of several rows in another library. A process with a first prompt that is cached except for one token computes
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
