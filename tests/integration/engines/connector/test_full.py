"""Tiers that are full, and disks that cannot hold them."""
from __future__ import annotations

from pathlib import Path

import pytest

from connector.support import prompt, same, transfer
from engine import RANDOM, Engine, EngineError

TIERS = """
from libkvbm.vllm.connector import engines
tiers = [worker.tiers.manager.stats().tiers for workers in engines._workers.values() for worker in workers][0]
result = [[tier.evictions, tier.damaged, tier.disabled, tier.used_bytes] for tier in tiers]
"""


def test_a_disk_that_cannot_hold_the_tier_refuses_startup_with_what_to_do(tiny: Path, tmp_path: Path) -> None:
    """Space is reserved at startup, so that a disk does not run full later."""
    with pytest.raises(EngineError, match="free space on its file system, or choose another directory"):
        Engine(tiny, {**RANDOM, **transfer(disk=str(tmp_path / "tier"), disk_capacity="8000TiB")})


def test_an_engine_whose_tiers_are_full_goes_on(tiny: Path) -> None:
    """Twenty prompts of ten blocks of 16 KiB, in 1 MiB of host memory and nothing below it."""
    llm = transfer(settings={"host.capacity": "1MiB"})
    with Engine(tiny, {**RANDOM, **llm}) as engine:
        first = [engine.generate([prompt(330, seed)], logprobs=0)[0] for seed in range(20)]
        assert engine.reset()
        again = [engine.generate([prompt(330, seed)], logprobs=0)[0] for seed in range(20)]
        for one, other in zip(first, again):
            same(one, other)
        (evictions, damaged, disabled, used), = engine.run(TIERS)
        assert evictions > 0, "it was never full"
        assert (damaged, disabled) == (0, False) and used <= 1 << 20
        assert "steps aside" not in engine.said()
