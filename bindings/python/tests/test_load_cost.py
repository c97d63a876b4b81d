"""Loads with a computing time."""
from __future__ import annotations

import libkvbm
from libkvbm.engine import MissedSpeed, PrefillSpeed

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


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def prompts(speed: MissedSpeed, clock: Clock, block_ns: int, n: int, what: str = "prompt") -> None:
    """n prompts of four blocks that an engine looks up, computes and stores."""
    for i in range(n):
        names = [f"{what} {i} {block}" for block in range(4)]
        speed.missed(names)
        clock.ns += 4 * block_ns
        speed.stored((name, 1) for name in names)


def test_between_a_miss_and_its_store_it_was_computed() -> None:
    clock = Clock()
    speed = MissedSpeed(now=clock)
    prompts(speed, clock, 100, 3)
    assert speed.block_ns(1) == 0  # too few
    prompts(speed, clock, 100, 1, "last")
    assert speed.block_ns(1) == 100 and speed.block_ns(16) == 1600
    prompts(speed, clock, 900, 32, "slower")
    assert speed.block_ns(1) == 900


def test_what_waited_or_came_in_pieces_says_no_more_than_what_computing_takes() -> None:
    clock = Clock()
    speed = MissedSpeed(now=clock)
    for i in range(4):
        names = [f"{i} {block}" for block in range(8)]
        speed.missed(names)
        clock.ns += 800
        for half in (names[:4], names[4:]):
            speed.stored((name, 1) for name in half)
    assert speed.block_ns(1) == 100
    prompts(speed, clock, 10**6, 12, "in a queue")  # three of four waited for their turn
    assert speed.block_ns(1) == 100


def test_an_answer_given_while_it_is_computed_does_not_make_the_engine_quick() -> None:
    clock = Clock()
    speed = MissedSpeed(now=clock)
    for i in range(8):
        names = [f"{i} {block}" for block in range(4)]
        speed.missed(names)
        clock.ns += 390
        speed.missed(names)  # another request for the same
        clock.ns += 10
        speed.stored((name, 1) for name in names)
    assert speed.block_ns(1) == 100


def test_what_is_never_stored_is_forgotten_and_single_blocks_say_nothing() -> None:
    clock = Clock()
    speed = MissedSpeed(now=clock)
    for i in range(3):
        speed.missed(range(i * 50_000, (i + 1) * 50_000))
    assert len(speed._waiting) <= 1 << 16
    for i in range(8):
        speed.missed([f"one {i}"])
        clock.ns += 1
        speed.stored([(f"one {i}", 1)])
    assert speed.block_ns(1) == 0
