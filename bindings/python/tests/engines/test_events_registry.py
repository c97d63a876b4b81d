"""Events of blocks that are stored, removed and described in any order, against a model with complete knowledge."""
from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed: pip install pyzmq msgspec")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install msgspec")

from libkvbm.events import AllBlocksCleared, BlockRemoved, BlockStored, Index  # noqa: E402
from libkvbm.events.registry import About, Described, Place, Registry, Teller  # noqa: E402

MEDIUMS = {0: "HOST", 1: "DISK", 2: "DISK"}
SPACES = [bytes([at]) * 16 for at in (1, 2, 3)]


def registry(limit: int = 100, whole: bool = True) -> Registry:
    return Registry(MEDIUMS, limit, whole, lambda: Teller(None, None))


def described(number: int, components: int = 1, **more: Any) -> Described:
    return Described(number, None, (), About(components=components, **more), {})


def name(space: int, number: int) -> bytes:
    return SPACES[space] + number.to_bytes(4, "big")


def test_a_block_that_is_described_anew_is_told_anew() -> None:
    one = registry()
    one.describe(name(0, 1), described(5))
    one.stored((name(0, 1), 0, 0))
    assert one.take() == [BlockStored([5], medium="HOST")]
    one.describe(name(0, 1), described(5))
    assert one.take() == []
    one.describe(name(0, 1), described(6))
    assert one.take() == [BlockRemoved([5], "HOST"), BlockStored([6], medium="HOST")]
    one.removed((name(0, 1), 0, 0))
    assert one.take() == [BlockRemoved([6], "HOST")]


def test_one_namespace_cleared_leaves_the_others_and_the_last_one_clears_all() -> None:
    one = registry()
    for space in range(3):
        for number in range(3):
            one.describe(name(space, number), described(10 * space + number))
            one.stored((name(space, number), 0, number))
    one.stored((name(1, 7), 0, 0))  # and one that was not described
    one.take()
    one.cleared(SPACES[1])
    assert one.take() == [BlockRemoved([10], "HOST"), BlockRemoved([11, 12], "DISK")] and one.undescribed == 0
    one.cleared(SPACES[1])
    assert one.take() == []
    one.cleared(SPACES[0])
    one.take()
    one.cleared(SPACES[2])
    assert one.take() == [AllBlocksCleared()]
    one.cleared(bytes(16))
    assert one.take() == []


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_told_adds_up(whole: bool) -> None:
    for seed in range(30):
        rng = random.Random(seed)
        limit = rng.choice((5, 100))
        one, index = registry(limit, whole), Index()
        there: set[Place] = set()
        for turn in range(150):
            block = name(rng.randrange(3), rng.randrange(6))
            place = (block, rng.randrange(2), rng.randrange(4))  # tier 3 sends no events
            what = rng.choices(("stored", "removed", "describe", "cleared", "all", "lost", "settle"),
                               (30, 15, 20, 2, 1, 1, 2))[0]
            if what == "stored":
                one.stored(place)
                there.add(place)
            elif what == "removed":
                one.removed(place)
                there.discard(place)
            elif what == "describe":
                one.describe(block, described(block[0] * 100 + block[-1] + 1000 * rng.randrange(2),
                                              rng.choice((1, 2, 2))))
            elif what == "cleared":
                one.cleared(block[:16])
                there = {at for at in there if at[0][:16] != block[:16]}
            elif what == "all":
                one.cleared(bytes(16))
                there = set()
            elif what == "lost":
                one.lost_tier(place[2])
                there = {at for at in there if at[2] != place[2]}
            else:
                there = {at for at in there if rng.random() < 0.7} | {place}
                one.settle(sorted(there))
            index.apply("me", one.take())
            right: dict[int, set[str]] = {}
            for block, about in one._known.items():
                full = range(about.about.components)
                mediums = {MEDIUMS[tier] for tier in MEDIUMS if all((block, part, tier) in there for part in full)}
                if limit == 100:
                    right[int(str(about.hash))] = mediums
                # Places of dropped blocks were dropped as well: never more blocks than there are.
                assert index.mediums("me", about.hash) <= mediums, (seed, turn, what)
            for number, mediums in right.items():
                assert index.mediums("me", number) == mediums, (seed, turn, what)
            assert len(index) == sum(bool(index.mediums("me", about.hash)) for about in one._known.values())
            assert len(one) <= limit and one.undescribed <= limit
            assert {block for blocks in one._there.values() for block in blocks} == {
                *one._waiting, *(block for block, about in one._known.items() if about.present)}, (seed, turn, what)
