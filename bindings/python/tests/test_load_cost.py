"""Loads that are told what computing takes."""
from __future__ import annotations

import libkvbm
from libkvbm.engine import PrefillSpeed

BLOCK = 4096


def test_a_load_that_computing_beats_is_left_and_counted(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    memory = bytearray(8 * BLOCK)
    keys = libkvbm.Keys.chain(ns, range(4), 1)
    with libkvbm.Cache(manager, ns, 8, tensors=[memory]) as cache:
        cache.store(keys, range(4))
        with cache.lookup(keys) as match:
            times = match.cost()
            assert len(times) == 4 and 0 < times[0] and times == sorted(times)
            assert match.cost(3, 1) == times[:1]
            left = cache.load(match, range(4, 8), compute_block_ns=1)
            assert left.status == libkvbm.Status.PARTIAL
            assert set(left.item_status) == {libkvbm.Status.DEADLINE}
            assert cache.load(match, range(4, 8), compute_block_ns=10**10).status == 0
    stats = manager.stats()
    assert (stats.loads_not_started, stats.loads_weighed, stats.blocks_left) == (1, 1, 4)
    assert stats.load_predicted_ns > 0 and stats.load_actual_ns > 0 and stats.compute_saved_ns > 10**10


def test_the_speed_of_prefill_follows_its_steps() -> None:
    speed = PrefillSpeed()
    assert speed.block_ns(16) == 0
    speed.measured(8, 10**9)  # too few tokens to say anything
    assert speed.block_ns(16) == 0
    for _ in range(20):
        speed.measured(1000, 10**8)
    assert speed.block_ns(16) == 1_600_000
    speed.measured(1000, 10**9)  # one slow step
    assert speed.block_ns(16) < 5_000_000
    for _ in range(20):
        speed.measured(1000, 10**9)
    assert 15_000_000 < speed.block_ns(16) <= 16_000_000
